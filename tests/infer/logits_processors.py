# SPDX-License-Identifier: Apache-2.0
"""What the logits processors of the transformers package make of the rows that
logits_processors_test.cc writes.

FOLDER/cases.json: a list of {prompt, output, bias, masked, repetition, temperature, top_k, top_p,
min_p}, and FOLDER/logits.f32 [cases, vocab]. Writes FOLDER/kept.u8 [cases, vocab] (1: the token may
be drawn) and FOLDER/distribution.f64 [cases, vocab].
"""

import json
import pathlib
import sys

import numpy
import torch
import transformers


def processors(case):
    chain = []
    if case["bias"]:
        bias = {(token,): value for token, value in case["bias"]}
        chain.append(transformers.SequenceBiasLogitsProcessor(bias))
    if case["masked"]:
        chain.append(transformers.SuppressTokensLogitsProcessor(case["masked"]))
    if case["repetition"] != 1:
        chain.append(transformers.RepetitionPenaltyLogitsProcessor(case["repetition"]))
    chain.append(transformers.TemperatureLogitsWarper(case["temperature"]))
    if case["top_k"] > 0:
        chain.append(transformers.TopKLogitsWarper(case["top_k"]))
    if case["top_p"] < 1:
        chain.append(transformers.TopPLogitsWarper(case["top_p"]))
    if case["min_p"] > 0:
        chain.append(transformers.MinPLogitsWarper(case["min_p"]))
    return transformers.LogitsProcessorList(chain)


def main():
    folder = pathlib.Path(sys.argv[1])
    cases = json.loads((folder / "cases.json").read_text())
    logits = numpy.fromfile(folder / "logits.f32", dtype=numpy.float32).reshape(len(cases), -1)
    kept, distributions = [], []
    for case, row in zip(cases, logits):
        ids = torch.tensor([case["prompt"] + case["output"]])
        # In double, so that sums of probabilities are those of the definition.
        scores = processors(case)(ids, torch.tensor(row, dtype=torch.float64)[None])[0]
        kept.append(torch.isfinite(scores).numpy().astype(numpy.uint8))
        distributions.append(torch.softmax(scores, -1).numpy())
    numpy.stack(kept).tofile(folder / "kept.u8")
    numpy.stack(distributions).tofile(folder / "distribution.f64")


if __name__ == "__main__":
    main()
