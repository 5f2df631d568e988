#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every method of `hone compress` does to one model, beside files that other programs made.

  bench/studies/compress_methods.py MODEL [--calib FILE] --data stories --data FILE \\
      --work FOLDER [--file NAME=FILE.gguf]... [--only NAME]... [--speed]

Prints a Markdown table: for each row the bytes of the weights, bits per weight of all matrices and
of those in layers, mean and 99th percentile of the KL divergence from MODEL, top-1 agreement and
the ratio of perplexities on each text, the seconds that `hone compress` took, and with --speed the
tokens per second of decoding. Rows are kept in FOLDER/rows.jsonl, so that an interrupted study
continues; --only runs some of them.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time

# Name, suffix of the output, and options.
METHODS = [
    ("int8:row", "", ["--quantize", "int8:row"]),
    ("q8_0", ".gguf", ["--quantize", "q8_0"]),
    ("q5_0 gptq", ".gguf", ["--quantize", "q5_0:gptq"]),
    ("q4_1 gptq", ".gguf", ["--quantize", "q4_1:gptq"]),
    ("q4_0 rtn", ".gguf", ["--quantize", "q4_0"]),
    ("q4_0 importance", ".gguf", ["--quantize", "q4_0:importance"]),
    ("q4_0 gptq", ".gguf", ["--quantize", "q4_0:gptq"]),
    ("iq4_nl gptq", ".gguf", ["--quantize", "iq4_nl:gptq"]),
    ("q6_k importance", ".gguf", ["--quantize", "q6_k:importance"]),
    ("q6_k gptq", ".gguf", ["--quantize", "q6_k:gptq"]),
    ("q5_k importance", ".gguf", ["--quantize", "q5_k:importance"]),
    ("q5_k gptq", ".gguf", ["--quantize", "q5_k:gptq"]),
    ("q4_k importance", ".gguf", ["--quantize", "q4_k:importance"]),
    ("q4_k gptq", ".gguf", ["--quantize", "q4_k:gptq"]),
    ("q3_k importance", ".gguf", ["--quantize", "q3_k:importance"]),
    ("q3_k gptq", ".gguf", ["--quantize", "q3_k:gptq"]),
    ("int4:g32 rtn", "", ["--quantize", "int4:g32"]),
    ("int4:g64 gptq", "", ["--quantize", "int4:g64:gptq"]),
    ("int3:g64 rtn", "", ["--quantize", "int3:g64"]),
    ("int3:g64 gptq", "", ["--quantize", "int3:g64:gptq"]),
    ("int2:g64 gptq", "", ["--quantize", "int2:g64:gptq"]),
    ("log4:g32 gptq", "", ["--quantize", "log4:g32:gptq"]),
    ("magnitude 50 %", "", ["--prune", "magnitude:0.5"]),
    ("magnitude 50 % global", "", ["--prune", "magnitude:0.5:global"]),
    ("wanda 50 %", "", ["--prune", "wanda:0.5"]),
    ("sparsegpt 50 %", "", ["--prune", "sparsegpt:0.5"]),
    ("sparsegpt 50 % + int4:g64 gptq", "",
     ["--prune", "sparsegpt:0.5", "--quantize", "int4:g64:gptq"]),
    ("ffn 25 % without repair", "", ["--prune", "ffn:0.25:norepair"]),
    ("ffn 25 %", "", ["--prune", "ffn:0.25"]),
    ("heads 33 % without repair", "", ["--prune", "heads:0.34:norepair"]),
    ("heads 33 %", "", ["--prune", "heads:0.34"]),
    ("layers 10 %", "", ["--prune", "layers:0.1"]),
    ("svd K/4", "", ["--lowrank", "svd:0.25"]),
    ("whitened K/4", "", ["--lowrank", "whitened:0.25"]),
    ("whitened 2 % loss + int8:row", "",
     ["--lowrank", "whitened:loss=0.02", "--quantize", "int8:row"]),
]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def card_of(text, quality):
    return {"text": text, "kl_mean": quality["kl_mean"], "kl_p99": quality["kl_p99"],
            "top1": quality["top1_agreement"], "ppl_ratio": quality["ppl_ratio"]}


def speed_of(program, model):
    document = run([program, "bench", "llm", "--model", model, "--pp", "16", "--tg", "64",
                    "--repeat", "3", "--json", "-q"])
    return [row["tokens_per_s"] for row in document["rows"] if "/tg" in row["case"]][0]


def compress(arguments, name, suffix, options):
    out = arguments.work / ("model" + suffix)
    shutil.rmtree(out, ignore_errors=True)
    out.unlink(missing_ok=True)
    begin = time.monotonic()
    data = [word for one in arguments.data for word in ("--data", one)]
    calib = ["--calib", arguments.calib] if arguments.calib else []
    document = run([arguments.program, "compress", arguments.model, "-o", out, *calib, *data,
                    *options, "--json", "-q"])
    seconds = time.monotonic() - begin
    quality, sizes = document["quality"], document["sizes"]
    cards = [quality, *quality["other_texts"]][:len(arguments.data)]
    row = {"name": name, "bytes": sizes["file_bytes"], "bits": sizes["bits_per_weight"],
           "layer_bits": sizes["bits_per_layer_weight"], "seconds": seconds,
           "cards": [card_of(card["text"], card) for card in cards]}
    if arguments.speed:
        row["tokens_per_s"] = speed_of(arguments.program, out)
    return row


def measure(arguments, name, file):
    cards = []
    for text in arguments.data:
        path = text
        if text != "stories":  # of a file the last tenth, as on the card of `hone compress`
            whole = pathlib.Path(text).read_text()
            tail = whole.find("\n", len(whole) - len(whole) // 10) + 1
            path = arguments.work / "held_out.txt"
            path.write_text(whole[tail:])
        cards.append(card_of(text, run([
            arguments.program, "eval", file, "--baseline", arguments.model, "--data", path,
            "--max-tokens", "10000", "--json", "-q"])))
    row = {"name": name, "bytes": pathlib.Path(file).stat().st_size, "cards": cards}
    if arguments.speed:
        row["tokens_per_s"] = speed_of(arguments.program, file)
    return row


def line_of(row):
    def number(key, form):
        return format(row[key], form) if key in row else ""
    cells = [row["name"], f"{row['bytes'] / 1e6:.1f}", number("bits", ".2f"),
             number("layer_bits", ".2f")]
    for card in row["cards"]:
        cells += [f"{card['kl_mean']:.4f}", f"{card['kl_p99']:.2f}", f"{100 * card['top1']:.1f}",
                  f"{card['ppl_ratio']:.3f}"]
    cells += [number("seconds", ".0f"), number("tokens_per_s", ".0f")]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--calib", help="calibration text (default: the model writes it)")
    parser.add_argument("--data", action="append", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--program", default="build/hone")
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("--size", action="append", default=[], help="a row of `--size SIZE`")
    parser.add_argument("--only", action="append")
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    kept = arguments.work / "rows.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    jobs = [(name, lambda n=name, f=file: measure(arguments, n, f))
            for name, file in (one.split("=", 1) for one in arguments.file)]
    methods = METHODS + [(f"size {size}", ".gguf", ["--size", size]) for size in arguments.size]
    jobs += [(name, lambda n=name, s=suffix, o=options: compress(arguments, n, s, o))
             for name, suffix, options in methods]
    for name, make in jobs:
        if (arguments.only and name not in arguments.only) or name in [r["name"] for r in rows]:
            continue
        rows.append(make())
        with open(kept, "a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    texts = "".join(f" KL {n} | p99 | top-1 % | ppl |" for n in range(1, len(arguments.data) + 1))
    header = f"| method | MB | bits | in layers |{texts} s | tokens/s |"
    print(header + "\n|---" + "|--:" * (header.count("|") - 2) + "|")
    for row in rows:
        print(line_of(row))


if __name__ == "__main__":
    main()
