#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lm-eval's client `local-completions`, unchanged, against a server of hone.

lm_eval_scores.py URL HONE MODEL

Evaluates a local task of the kind `multiple_choice` through the command of lm-eval's package, with
the tokenizer of the server, and compares the log-likelihoods that it logs with those of
`hone eval --token-ids` on the same ids. Prints "ok" and the largest difference.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

DOCUMENTS = [
    {"question": "The capital of France is", "choices": [" Paris", " London", " a potato"],
     "answer": 0},
    {"question": "Two plus two is", "choices": [" five", " four", " blue"], "answer": 1},
    {"question": "def add(a, b):\n    return", "choices": [" a + b", " the sky", " []"],
     "answer": 0},
    {"question": "Water freezes at zero degrees", "choices": [" Celsius", " Kelvin", " Tuesday"],
     "answer": 0},
]
TASK = """
task: hone_local
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
target_delimiter: ""
metric_list:
  - metric: acc
"""


def tokenize(url, text):
    body = json.dumps({"prompt": text, "add_special_tokens": False}).encode()
    request = urllib.request.Request(
        f"{url}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["tokens"]


def negative_log_likelihood(hone, model, ids, folder):
    file = pathlib.Path(folder, "ids.json")
    file.write_text(json.dumps(ids))
    out = subprocess.run(
        [hone, "eval", model, "--token-ids", str(file), "--json", "-q"],
        check=True, stdout=subprocess.PIPE).stdout
    card = json.loads(out)
    return card["nll"] * card["tokens"]


def evaluate(url, model_id, folder):
    data = pathlib.Path(folder, "data.json")
    data.write_text("\n".join(json.dumps(document) for document in DOCUMENTS))
    pathlib.Path(folder, "task.yaml").write_text(TASK.format(data=data))
    subprocess.run(
        [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--tasks", "hone_local",
         "--include_path", folder, "--batch_size", "4", "--log_samples", "--output_path", folder,
         "--model_args", f"model={model_id},base_url={url}/v1/completions,num_concurrent=2,"
         "tokenizer_backend=remote,max_retries=1"],
        check=True, stdout=sys.stderr)
    samples = next(pathlib.Path(folder).rglob("samples_hone_local*.jsonl"))
    return [json.loads(line) for line in samples.read_text().splitlines()]


def main():
    url, hone, model = sys.argv[1:]
    with urllib.request.urlopen(f"{url}/v1/models") as answer:
        model_id = json.load(answer)["data"][0]["id"]
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        samples = evaluate(url, model_id, folder)
        assert len(samples) == len(DOCUMENTS), samples
        for sample in samples:
            document = sample["doc"]
            for choice, answer in zip(document["choices"], sample["filtered_resps"]):
                got = float(answer[0])
                context = tokenize(url, document["question"])
                whole = tokenize(url, document["question"] + choice)
                assert whole[: len(context)] == context, "the choice changes the tokens before it"
                want = -(negative_log_likelihood(hone, model, whole, folder)
                         - (negative_log_likelihood(hone, model, context, folder)
                            if len(context) > 1 else 0))
                worst = max(worst, abs(got - want))
                assert abs(got - want) <= 1e-5 * max(1, len(whole)), (document, choice, got, want)
    print("ok", worst)


main()
