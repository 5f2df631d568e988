# SPDX-License-Identifier: Apache-2.0
"""Writes files as torch.save does, without PyTorch: the pickles name classes and functions of other
modules than PyTorch's, which stand in for those while the pickles are written."""

import collections
import io
import pickle
import struct
import sys
import types
import unittest.mock
import zipfile

ITEM_BYTES = {"DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2,
              "LongStorage": 8, "IntStorage": 4, "ShortStorage": 2, "CharStorage": 1,
              "ByteStorage": 1, "BoolStorage": 1}
MAGIC = 0x1950A86A20F9469CFC6C


def make_modules():
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ITEM_BYTES:
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter"):
        function = types.FunctionType((lambda *_: None).__code__, {}, name)
        function.__module__, function.__qualname__ = "torch._utils", name
        setattr(utils, name, function)
    torch._utils = utils
    return {"torch": torch, "torch._utils": utils}


MODULES = make_modules()
UTILS = MODULES["torch._utils"]


class Storage:
    """`count` and `view` may lie about the data."""

    def __init__(self, kind, data, count=None, view=None):
        self.kind, self.data, self.view = kind, data, view
        self.count = len(data) // ITEM_BYTES[kind] if count is None else count


class Tensor:
    def __init__(self, storage, size, stride=None, offset=0):
        self.storage, self.size, self.offset = storage, tuple(size), offset
        self.stride = row_major(size) if stride is None else tuple(stride)

    def __reduce__(self):
        hooks = collections.OrderedDict()
        return UTILS._rebuild_tensor_v2, (self.storage, self.offset, self.size, self.stride, False,
                                          hooks)

    def values(self):
        """The bytes of each element in row-major order, by the definition of a strided view."""
        item = ITEM_BYTES[self.storage.kind]
        positions = [self.offset]
        for size, stride in zip(self.size, self.stride):
            positions = [at + i * stride for at in positions for i in range(size)]
        return b"".join(self.storage.data[at * item:(at + 1) * item] for at in positions)


class OldTensor(Tensor):
    def __reduce__(self):
        return UTILS._rebuild_tensor, (self.storage, self.offset, self.size, self.stride)


class Parameter:
    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        return UTILS._rebuild_parameter, (self.tensor, True, collections.OrderedDict())


def row_major(size):
    stride, step = [], 1
    for n in reversed(size):
        stride.insert(0, step)
        step *= n
    return tuple(stride)


def floats(*values):
    return Storage("FloatStorage", struct.pack(f"<{len(values)}f", *values))


class Pickler(pickle.Pickler):
    def __init__(self, file, legacy):
        super().__init__(file, protocol=2)
        self.legacy, self.storages = legacy, []

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        if value not in self.storages:
            self.storages.append(value)
        key = str(self.storages.index(value))
        kind = getattr(MODULES["torch"], value.kind)
        view = (value.view,) if self.legacy else ()
        return ("storage", kind, key, "cpu", value.count, *view)


def pickled(value, legacy):
    """(bytes, storages)"""
    out = io.BytesIO()
    with unittest.mock.patch.dict(sys.modules, MODULES):
        pickler = Pickler(out, legacy)
        pickler.dump(value)
    return out.getvalue(), pickler.storages


def zip_file(value, pickle_bytes=None, byteorder=b"little", compression=zipfile.ZIP_STORED):
    data, storages = pickled(value, legacy=False)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickle_bytes or data)
        archive.writestr("archive/byteorder", byteorder)
        for i, storage in enumerate(storages):
            archive.writestr(f"archive/data/{i}", storage.data)
        archive.writestr("archive/version", b"3\n")
    return out.getvalue()


def legacy_file(value, pickle_bytes=None, little=True):
    data, storages = pickled(value, legacy=True)
    machine = {"protocol_version": 1001, "little_endian": little, "type_sizes": {"int": 4}}
    out = b"".join(pickle.dumps(part, 2) for part in (MAGIC, 1001, machine))
    out += pickle_bytes or data
    out += pickle.dumps([str(i) for i in range(len(storages))], 2)
    for storage in storages:
        out += struct.pack("<q", storage.count) + storage.data
    return out
