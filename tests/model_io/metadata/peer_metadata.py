# SPDX-License-Identifier: Apache-2.0
"""The gguf package and transformers as oracles for what a model says of itself.

types             prints {name: number} of the package's file types
card FOLDER OUT   writes a GGUF file with what the package finds in the folder's model card
chat FOLDER       prints what transformers has as chat template, and the text and the ids that it
                  makes of two messages
"""
import json
import pathlib
import sys


def print_types():
    import gguf

    print(json.dumps({one.name: int(one) for one in gguf.LlamaFileType}))


def read_card(folder, out):
    import gguf

    writer = gguf.GGUFWriter(out, "llama")
    metadata = gguf.Metadata.load(model_path=pathlib.Path(folder))
    metadata.set_gguf_meta_model(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def print_chat(folder):
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]
    chosen = {"chat_template": "default"} if isinstance(tokenizer.chat_template, dict) else {}
    text = tokenizer.apply_chat_template(messages, tokenize=False, **chosen)
    ids = tokenizer.apply_chat_template(messages, return_dict=False, **chosen)
    print(json.dumps({"template": tokenizer.chat_template, "text": text, "ids": ids}))


{"types": print_types, "card": read_card, "chat": print_chat}[sys.argv[1]](*sys.argv[2:])
