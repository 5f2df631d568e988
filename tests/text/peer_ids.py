#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what other people's tokenizers give, for peer_test.cc to compare with.

peer_ids.py JOB FILE OUT: JOB is gpt2, sentencepiece, auto (transformers.AutoTokenizer of a folder),
gemma (writes such a tokenizer into a folder), removed-NAME (writes one whose Split removes what the
expression NAME does not match), split-NAME (FILE is not read), train (a BpeTrainer on the texts,
FILE = vocabulary size) or nfc. OUT becomes {"texts": […], "ids": […]} (train: {"texts", "vocab",
"merges"}; nfc: "ids" are the normalized texts; split: "ids" are the parts of the texts).
Texts: stretches of tinyshakespeare where HONE_TEST_DATA has it, and random Unicode strings; for the
expressions also chosen ones.
"""
import functools
import json
import os
import pathlib
import random
import sys
import unicodedata

ODDITIES = """́ ̈ ̣ \x85 ᠎ \r \n \r\n \t ​ ‍   　     's 'S 'LL 'ſ ſ K ﬁ ½ ² Ⅷ ٣ ߀ 가 각 ᄀ ᅡ ᆨ Å é _
- \0 \x0b \x0c \x1c \x1f 😀 👨‍👩‍👧 हि ы ß İ""".split(" ") + [" ", "  ", "   "]

# The expressions as published: tekken by Mistral (the "pattern" of tekken.json), o200k and cl100k
# by OpenAI (tiktoken), llama3 by Meta.
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
PUBLISHED = {
    "tekken": rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
              r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + END,
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?"
             rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
             r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + END,
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
              r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "llama3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
              r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + END,
}

# What the alternatives of these expressions tell apart.
CHOSEN = [
    "CamelCase and camelCase", "HTTPServer XMLHttpRequest iPhone McDonald", "ALLCAPS ALL CAPS A b",
    "snake_case SCREAMING_SNAKE_CASE kebab-Case", "AaBbCCddEEf", "ABCdef1GHi", "don't DON'T Don'T",
    "we'll WE'LL they'Ve I'm I'M you'd YOU'RE it's", "'s 't 'S x'y o'clock 'tis rock'n'roll",
    "John's JOHN'S JOHN's 5's", "été ÉTÉ Étude ÀB naïve Straße ẞ", "e\u0301te\u0301 E\u0301TE",
    "\u0301 \u0301a A\u0301\u0302b 1\u0301 !\u0301x", "Ǆ ǅ ǆ ǅabc ABǅ", "ʰʱ aʰB Aʰb ªº",
    "中文字符abc中文ABC", "日本語のテキスト、カタカナ。", "한국어 텍스트입니다 가각", "Ελληνικά ΕΛΛΗΝΙΚΑ",
    "Привет МИР мирТруд", "हिन्दी में लिखा", "العربية שלום", "1234567 12 3.14159 1e10 0xFF",
    "١٢٣٤ ½ Ⅷ ² x2y3Z", "a/b//c /d/ e/\n/f ///\n\n/", "https://example.com/Path/To?x=Y&z=1",
    "// comment\n/* more */\n", "!!!\n\n\n???/\r\n/ ...", "tabs\tand\t\tmore\t\n\tx",
    "  two   three    four ", "a \n b\n\n  c \r\n\r\n d", "trailing   ", "   leading",
    "\n", " ", "\t \n \t", "a\u00a0b\u2003c\u3000d", "😀😀 emoji 👨‍👩‍👧x 🇫🇷FR",
    "¿Qué? «Oui» — ‘no’ “Yes”", "if(x){return Y;}\n\t\telse Z++;", "C++ C# F# .NET a=B+c",
    "@User #HashTag $100 50%",
]


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


def with_splitter(splitter):
    from tokenizers import Tokenizer, models, pre_tokenizers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [splitter, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def removed(name, folder, texts):
    """Writes a tokenizer.json with an inverted Split of behavior Removed, and returns its ids.
    The vocabulary is learnt from undivided texts, so that merges cross the ends of the parts."""
    from tokenizers import Regex, pre_tokenizers, trainers
    whole = with_splitter(pre_tokenizers.Split(Regex(r"[\s\S]{24}"), "isolated"))
    whole.train_from_iterator(texts[:5000] * 2, trainers.BpeTrainer(
        vocab_size=3000, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    whole.pre_tokenizer = with_splitter(
        pre_tokenizers.Split(Regex(PUBLISHED[name]), "removed", invert=True)).pre_tokenizer
    whole.save(os.path.join(folder, "tokenizer.json"))
    return [encoding.ids for encoding in whole.encode_batch(texts)]


def parts(name, texts):
    from tokenizers import Regex, pre_tokenizers
    splitter = pre_tokenizers.Split(Regex(PUBLISHED[name]), "isolated")
    return [[part for part, _ in splitter.pre_tokenize_str(text)] for text in texts]


def main():
    job, file, out = sys.argv[1:4]
    if job == "train":
        answer = train(int(file), shakespeare() or random_texts(5000))
    else:
        texts = random_texts(100_000) + shakespeare()
        if "-" in job:
            texts = CHOSEN + texts
        run = {f"split-{name}": lambda _, all_texts, name=name: parts(name, all_texts)
               for name in PUBLISHED}
        run |= {f"removed-{name}": functools.partial(removed, name) for name in PUBLISHED}
        run |= {"gpt2": ids_of_gpt2, "sentencepiece": ids_of_sentencepiece, "auto": ids_of_auto,
                "gemma": gemma,
                "nfc": lambda _, all_texts: [unicodedata.normalize("NFC", t) for t in all_texts]}
        answer = {"texts": texts, "ids": run[job](file, texts)}
    with open(out, "w", encoding="utf-8") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
