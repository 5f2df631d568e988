#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what other people's tokenizers give, for peer_test.cc to compare with.

peer_ids.py JOB FILE OUT: JOB is gpt2, sentencepiece, auto (transformers.AutoTokenizer of a folder),
gemma (writes such a tokenizer into a folder), train (a BpeTrainer on the texts, FILE = vocabulary
size) or nfc. OUT becomes {"texts": […], "ids": […]} (train: {"texts", "vocab", "merges"}; nfc:
"ids" are the normalized texts).
Texts: stretches of tinyshakespeare where HONE_TEST_DATA has it, and random Unicode strings.
"""
import json
import os
import pathlib
import random
import sys
import unicodedata

ODDITIES = """́ ̈ ̣ \x85 ᠎ \r \n \r\n \t ​ ‍   　     's 'S 'LL 'ſ ſ K ﬁ ½ ² Ⅷ ٣ ߀ 가 각 ᄀ ᅡ ᆨ Å é _
- \0 \x0b \x0c \x1c \x1f 😀 👨‍👩‍👧 हि ы ß İ""".split(" ") + [" ", "  ", "   "]


def random_texts(count):
    """Only code points assigned in this Python's Unicode version: engines differ on later ones."""
    source = random.Random(7)
    assigned = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000
                and unicodedata.category(chr(c)) not in ("Cn", "Co")]
    low = [c for c in assigned if 0x80 <= c < 0x3000]

    def character():
        kind = source.random()
        if kind < 0.35:
            return source.choice(ODDITIES)
        if kind < 0.7:
            return chr(source.randint(32, 126))
        return chr(source.choice(assigned if kind < 0.9 else low))

    return ["".join(character() for _ in range(source.randint(1, 24))) for _ in range(count)]


def shakespeare():
    path = pathlib.Path(os.environ.get("HONE_TEST_DATA", "")) / "text/tinyshakespeare.txt"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [text[i:i + 2000] for i in range(0, len(text), 2000)]


def ids_of_gpt2(vocab, texts):
    from tokenizers import Tokenizer, models, pre_tokenizers
    merges = vocab.replace("vocab.json", "merges.txt")
    tokenizer = Tokenizer(models.BPE.from_file(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def ids_of_sentencepiece(model, texts):
    import sentencepiece
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    return [processor.encode(text) for text in texts]


def ids_of_auto(folder, texts):
    from transformers import AutoTokenizer
    return AutoTokenizer.from_pretrained(folder)(texts)["input_ids"]


def train(vocab_size, texts):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    return {"texts": texts, "vocab": model["vocab"], "merges": merges}


def gemma(folder, texts):
    """Writes a tokenizer.json that is built as Gemma's, and returns its ids."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.train_from_iterator(
        (shakespeare() or texts[:5000]) + ["    x\n\n\n    y" * 50] * 200,
        trainers.BpeTrainer(vocab_size=3000, show_progress=False, max_token_length=16,
                            special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"]))
    whole = json.loads(tokenizer.to_str())
    vocab = whole["model"]["vocab"]
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    whole["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    runs = [run for run in ("\n\n", "\u2581\u2581", "\u2581" * 4) if run in vocab]
    assert len(runs) >= 2, runs
    tokenizer.add_tokens([AddedToken(run, normalized=False) for run in runs])
    tokenizer.add_special_tokens(["<start_of_turn>"])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    return [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def main():
    job, file, out = sys.argv[1:4]
    if job == "train":
        answer = train(int(file), shakespeare() or random_texts(5000))
    else:
        texts = random_texts(100_000) + shakespeare()
        run = {"gpt2": ids_of_gpt2, "sentencepiece": ids_of_sentencepiece, "auto": ids_of_auto,
               "gemma": gemma,
               "nfc": lambda _, all_texts: [unicodedata.normalize("NFC", t) for t in all_texts]}
        answer = {"texts": texts, "ids": run[job](file, texts)}
    with open(out, "w", encoding="utf-8") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
