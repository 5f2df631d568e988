# SPDX-License-Identifier: Apache-2.0
"""Writes the pixels that Pillow's convert("RGB") gives for each file of a folder to FILE.rgb."""

import pathlib
import sys
import warnings

import PIL.Image

warnings.simplefilter("ignore")  # about transparency that is dropped
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    with PIL.Image.open(path) as image:
        path.with_name(path.name + ".rgb").write_bytes(image.convert("RGB").tobytes())
