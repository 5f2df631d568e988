# SPDX-License-Identifier: Apache-2.0
"""The logits of a torchvision model with hone's weights.

  torchvision_logits.py MODEL FOLDER

FOLDER has model.safetensors and images.safetensors, and gets logits.safetensors.
"""
import pathlib
import sys

import torch
import torchvision
from safetensors.torch import load_file, save_file

name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
state = load_file(folder / "model.safetensors")
net = getattr(torchvision.models, name)(num_classes=state["fc.bias"].numel())
net.load_state_dict(state, strict=True)
net.eval()
with torch.no_grad():
    logits = net(load_file(folder / "images.safetensors")["images"])
save_file({"logits": logits}, folder / "logits.safetensors")
