# SPDX-License-Identifier: Apache-2.0
"""The gguf package as oracle for the GGUF reader and writer.

read FILE    prints one JSON document: {"keys": {...}, "tensors": {name: [type, rows, cols, sum]}},
             values dequantized by the package, summed in double
random FILE  one matrix of random blocks of each quantized type, with the scales 0, subnormal,
             negative and largest among them; beside it FILE.f32 with all values as dequantized
split DIR    a model of random Q4_K and Q6_K blocks in several files written by the package, the
             first of them without tensors; beside them expected.json with {name: sum}
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


# Where the f16 numbers of a block are, and its size.
BLOCKS = {"Q8_0": ([0], 34), "Q4_0": ([0], 18), "Q4_1": ([0, 2], 20), "Q5_0": ([0], 22),
          "Q5_1": ([0, 2], 24), "Q4_K": ([0, 2], 144), "Q5_K": ([0, 2], 176), "Q6_K": ([208], 210),
          "Q3_K": ([108], 110), "IQ4_NL": ([0], 18)}
EXTREMES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x7bff, 0xfbff, 0xbc00]


def random_blocks(random, name, rows, count):
    halves, size = BLOCKS[name]
    data = random.integers(0, 256, (rows * count, size), dtype=np.uint8)
    for at in halves:
        scales = random.integers(0, 0x7c00, rows * count).astype(np.uint16)
        scales |= (random.integers(0, 2, rows * count) << 15).astype(np.uint16)
        scales[::3] = np.resize(np.roll(EXTREMES, at), len(scales[::3]))
        data[:, at:at + 2] = scales[:, None].view(np.uint8)
    return data.reshape(rows, count * size)


def write_random(path):
    random = np.random.default_rng(11)
    writer = gguf.GGUFWriter(path, "llama")
    values = []
    for name in BLOCKS:
        kind = gguf.GGMLQuantizationType[name]
        data = random_blocks(random, name, 13, 5)
        writer.add_tensor(name, data, raw_dtype=kind)
        values.append(gguf.quants.dequantize(data, kind).astype(np.float32).flatten())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.concatenate(values).tofile(path + ".f32")


def small_blocks(random, name, rows, count):
    """Random blocks whose scales are about 1e-4."""
    data = random_blocks(random, name, rows, count).reshape(-1, BLOCKS[name][1])
    for at in BLOCKS[name][0]:
        scales = random.uniform(0.5e-4, 1.5e-4, len(data)).astype(np.float16)
        data[:, at:at + 2] = scales[:, None].view(np.uint8)
    return data.reshape(rows, -1)


def split(folder):
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(folder + "/m.gguf", "llama", split_max_tensors=4,
                             small_first_shard=True)
    writer.add_context_length(64)
    writer.add_embedding_length(256)
    writer.add_block_count(1)
    writer.add_feed_forward_length(512)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_string("tokenizer.ggml.model", "no_vocab")
    shapes = {"token_embd": (48, 256), "output": (48, 256), "blk.0.attn_q": (256, 256),
              "blk.0.attn_k": (256, 256), "blk.0.attn_v": (256, 256),
              "blk.0.attn_output": (256, 256), "blk.0.ffn_gate": (512, 256),
              "blk.0.ffn_up": (512, 256), "blk.0.ffn_down": (256, 512)}
    expected = {}
    for i, (name, (rows, cols)) in enumerate(shapes.items()):
        kind = gguf.GGMLQuantizationType["Q6_K" if i % 3 == 0 else "Q4_K"]
        data = small_blocks(random, kind.name, rows, cols // 256)
        writer.add_tensor(name + ".weight", data, raw_dtype=kind)
        values = gguf.quants.dequantize(data, kind).astype(np.float64)
        expected[name + ".weight"] = float(values.sum())
    for name in ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"]:
        writer.add_tensor(name + ".weight", np.ones(256, dtype=np.float32))
        expected[name + ".weight"] = 256.0
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(folder + "/expected.json", "w") as file:
        json.dump(expected, file)


{"read": read, "write": write, "random": write_random, "split": split}[sys.argv[1]](sys.argv[2])
