# SPDX-License-Identifier: Apache-2.0
"""Steps AdamW of other software on the tensors of `hone bench optim`.

    python bench/peers/optim_step.py --peer torchao_8bit --tensors 24 --elements 1048576 --threads 2
"""

import argparse
import importlib.metadata
import logging
import os
import sys
import warnings

from peer_loop import serve

# Those of hone/bench/torch/optim_contestants.cc, as are the tensors.
SETTINGS = {"lr": 1e-5, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
SEED, ROW = 7, 1024
SMALL = 1 << 18  # large enough for a parallel region


def torch_compile(parameters):
    import torch
    optimizer = torch.optim.AdamW(parameters, **SETTINGS, foreach=True)
    return optimizer, torch.compile(lambda: optimizer.step())


def bitsandbytes_32bit(parameters):
    import bitsandbytes
    optimizer = bitsandbytes.optim.AdamW32bit(parameters, **SETTINGS)
    return optimizer, optimizer.step


def bitsandbytes_8bit(parameters):
    import bitsandbytes
    optimizer = bitsandbytes.optim.AdamW8bit(parameters, **SETTINGS)
    return optimizer, optimizer.step


def torchao_8bit(parameters):
    import torchao.optim
    optimizer = torchao.optim.AdamW8bit(parameters, **SETTINGS)
    return optimizer, optimizer.step


def torchao_4bit(parameters):
    import torchao.optim
    optimizer = torchao.optim.AdamW4bit(parameters, **SETTINGS)
    return optimizer, optimizer.step


def deepspeed(parameters):
    from deepspeed.ops.adam import DeepSpeedCPUAdam  # compiled at its first use
    optimizer = DeepSpeedCPUAdam(parameters, **SETTINGS, adamw_mode=True)
    return optimizer, optimizer.step


PEERS = {  # by the names of `--against`: what makes the optimizer, and its package
    "torch_compile": (torch_compile, "torch"),
    "bitsandbytes_32bit": (bitsandbytes_32bit, "bitsandbytes"),
    "bitsandbytes_8bit": (bitsandbytes_8bit, "bitsandbytes"),
    "torchao_8bit": (torchao_8bit, "torchao"),
    "torchao_4bit": (torchao_4bit, "torchao"),
    "deepspeed": (deepspeed, "deepspeed"),
}


def make_parameters(count, elements):
    import torch
    torch.manual_seed(SEED)
    shape = (elements // ROW, ROW) if elements > ROW and elements % ROW == 0 else (elements,)
    parameters = []
    for _ in range(count):
        parameter = torch.nn.Parameter(torch.randn(shape))
        parameter.grad = torch.randn(shape)
        parameters.append(parameter)
    return parameters


def storages(value):
    """The storages below a tensor, which for tensor subclasses are those of their parts."""
    if hasattr(value, "__tensor_flatten__"):
        for name in value.__tensor_flatten__()[0]:
            yield from storages(getattr(value, name))
    elif hasattr(value, "untyped_storage"):
        yield value.untyped_storage()


def state_bytes(optimizer):
    sizes = {}
    for state in optimizer.state.values():
        for value in state.values():
            for storage in storages(value):
                sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def start(options):
    """Makes both optimizers and takes their first steps, which make state and compile."""
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # of pools beside LibTorch's
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    import torch
    torch.set_num_threads(options.threads)
    make, package = PEERS[options.peer]
    optimizer, step = make(make_parameters(options.tensors, options.elements))
    _, wake = make(make_parameters(1, SMALL))
    step()
    wake()
    greeting = {
        "implementation": f"{package} {importlib.metadata.version(package)}",
        "state_bytes_per_param": state_bytes(optimizer) / (options.tensors * options.elements),
    }
    return greeting, step, wake


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--tensors", type=int, required=True)
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    # Packages print what they like; answers alone go to the caller.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    serve(start, options, answers)


if __name__ == "__main__":
    main()
