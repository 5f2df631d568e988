# SPDX-License-Identifier: Apache-2.0
"""The gguf package as oracle for the GGUF reader and writer.

read FILE    prints one JSON document: {"keys": {...}, "tensors": {name: [type, rows, cols, sum]}},
             values dequantized by the package, summed in double
write FILE   one matrix of each served type from seeded values, quantized by the package; beside it
             FILE.json with the sum and the first 40 dequantized values of each
"""
import json
import sys

import gguf
import numpy as np

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0"]


def read(path):
    reader = gguf.GGUFReader(path)
    keys = {}
    for name, field in reader.fields.items():
        value = field.contents()
        keys[name] = len(value) if isinstance(value, list) else value
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        shape = [int(n) for n in tensor.shape]
        rows = shape[1] if len(shape) > 1 else 1
        tensors[tensor.name] = [tensor.tensor_type.name, rows, shape[0],
                                float(values.sum())]
    print(json.dumps({"keys": keys, "tensors": tensors}))


def write(path):
    random = np.random.default_rng(5)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    expected = {}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        values = random.standard_normal((7, 96)).astype(np.float32)
        data = gguf.quants.quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
        back = gguf.quants.dequantize(data, kind).astype(np.float32)
        expected[name] = {"sum": float(back.astype(np.float64).sum()),
                          "first": back.flatten()[:40].astype(np.float64).tolist()}
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(path + ".json", "w") as file:
        json.dump(expected, file)


{"read": read, "write": write}[sys.argv[1]](sys.argv[2])
