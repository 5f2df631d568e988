#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts the tensors of a file of torch.save (.pth, .pt, .th) to safetensors, without PyTorch.

tools/pth_to_safetensors.py IN.pth OUT.safetensors [--key NAME]
tools/pth_to_safetensors.py IN.pth FOLDER --arch resnet20 --classes FILE|NAME,NAME,...
    [--mean R G B] [--std R G B] [--key NAME]

Reads the zip archives of PyTorch 1.6 and later and the older files that are pickles followed by
data. IN holds a state dict, or a dictionary with one: under NAME or, without --key, the only one
or that of `state_dict`, `model_state_dict` or `model`. Names stay as they are; what is no tensor is
left out and named.

With --arch, FOLDER is a classifier of images that `hone eval` and `hone classify` open. Its tensors
are those of the architecture in fp32, after a prefix `module.`; num_batches_tracked may be missing.
--classes names a file with a class a line, or has the names themselves. Images are normalized by
(value / 255 - mean) / std, by default with the mean and deviation of ImageNet.

No code of the file is run: the pickle is interpreted here, and it may call only OrderedDict and
the functions that rebuild a tensor or a parameter. Every other name is refused. Only Python's
standard library is used.

The output is written under a temporary name and renamed; a FOLDER must not exist. Exit status 0; 1
if it cannot be written; 2 for wrong usage, as an architecture or classes that do not fit; 3 for a
file that is missing or damaged; 4 for one with something that is not supported.
"""

import argparse
import contextlib
import io
import json
import math
import mmap
import os
import pathlib
import pickletools
import shutil
import struct
import sys
import zipfile
import zlib

WRITE_FAILED, USAGE, BAD_FILE, UNSUPPORTED = 1, 2, 3, 4

# Storage class -> (safetensors type, bytes of an element).
STORAGES = {"DoubleStorage": ("F64", 8), "FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2),
            "BFloat16Storage": ("BF16", 2), "LongStorage": ("I64", 8), "IntStorage": ("I32", 4),
            "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1), "ByteStorage": ("U8", 1),
            "BoolStorage": ("BOOL", 1)}
LEGACY_MAGIC, LEGACY_VERSION = 0x1950A86A20F9469CFC6C, 1001
LEGACY_BEGIN = b"\x80\x02\x8a\x0a"
STATE_DICTS = ("state_dict", "model_state_dict", "model")
MAX_DIMS = 64
MAX_COUNT = 2**62
# Tensors that share a storage are written one by one, up to this many times the size of the file.
MAX_GROWTH = 16
NAMES_SHOWN = 4

# Name -> (blocks of each stage, whether they are bottlenecks). Those of three stages are for
# CIFAR-10. Layers, names and shapes are those of hone/train/nn/resnet.h.
RESNETS = {"resnet18": ((2, 2, 2, 2), False), "resnet20": ((3, 3, 3), False),
           "resnet32": ((5, 5, 5), False), "resnet34": ((3, 4, 6, 3), False),
           "resnet44": ((7, 7, 7), False), "resnet50": ((3, 4, 6, 3), True),
           "resnet56": ((9, 9, 9), False)}
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LEAST_STD = 1e-9
MOST_CLASSES = 65535
COUNTER = ".num_batches_tracked"


class Refused(Exception):
    def __init__(self, status, sentence):
        super().__init__(sentence)
        self.status = status


def damaged(sentence):
    return Refused(BAD_FILE, sentence)


def unsupported(sentence):
    return Refused(UNSUPPORTED, sentence)


def quote(name):
    """A name of the file for a message: printable, at most 80 characters."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")


def is_count(value):
    return type(value) is int and 0 <= value <= MAX_COUNT


class Storage:
    """Elements of one type. `place` finds their bytes once the file's layout is known."""

    def __init__(self, key, dtype, itemsize, count):
        self.key, self.dtype, self.itemsize, self.count = key, dtype, itemsize, count
        self.data = None


class View:
    """Elements [begin, begin + count) of a storage."""

    def __init__(self, storage, begin, count):
        self.storage, self.begin, self.count = storage, begin, count


class Tensor:
    def __init__(self, view, offset, size, stride):
        self.view, self.size, self.stride = view, size, stride
        self.begin = view.begin + offset

    @property
    def storage(self):
        return self.view.storage

    def elements(self):
        return math.prod(self.size)

    def byte_count(self):
        return self.elements() * self.storage.itemsize

    def is_contiguous(self):
        expected = 1
        for size, stride in zip(reversed(self.size), reversed(self.stride)):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def pieces(self):
        """The bytes of the elements in row-major order, row by row unless they are contiguous."""
        item, data = self.storage.itemsize, self.storage.data
        if self.elements() == 0:
            return
        if self.is_contiguous():
            yield data[self.begin * item:(self.begin + self.elements()) * item]
            return
        elements = data.cast({1: "B", 2: "H", 4: "I", 8: "Q"}[item])
        row, step = self.size[-1], self.stride[-1]
        index = [0] * (len(self.size) - 1)
        while True:
            at = self.begin + sum(i * stride for i, stride in zip(index, self.stride))
            if step == 0:
                yield elements[at:at + 1].tobytes() * row
            else:
                yield elements[at:at + (row - 1) * step + 1:step].tobytes()
            for axis in reversed(range(len(index))):
                index[axis] += 1
                if index[axis] < self.size[axis]:
                    break
                index[axis] = 0
            else:
                return


class StorageType:
    def __init__(self, name):
        self.dtype, self.itemsize = STORAGES[name]


def new_dict(*pairs):
    """Python 2 wrote the items as a list of lists, Python 3 sets them later."""
    out = {}
    for pair in pairs[0] if pairs and type(pairs[0]) is list else pairs:
        if type(pair) not in (list, tuple) or len(pair) != 2:
            raise damaged("OrderedDict is called with something other than a list of pairs.")
        set_item(out, *pair)
    return out


def set_item(target, key, value):
    # A tuple could take forever to hash.
    if type(key) not in (str, int, float, bool, bytes, type(None)):
        raise unsupported(f"The file has a dictionary with a {type(key).__name__} as a key.")
    target[key] = value


def rebuild_tensor(view, offset, size, stride, *rest):
    """torch._utils._rebuild_tensor and _rebuild_tensor_v2, whose further arguments, requires_grad
    and hooks, are no part of the values."""
    if not isinstance(view, View) or type(size) is not tuple or type(stride) is not tuple:
        raise damaged("A tensor is rebuilt from something other than a storage and its sizes.")
    if len(size) != len(stride) or len(size) > MAX_DIMS:
        raise damaged(f"A tensor has {len(size)} sizes and {len(stride)} strides.")
    if not all(map(is_count, (offset, *size, *stride))):
        raise damaged("A tensor has a size, stride or offset that is no count.")
    tensor = Tensor(view, offset, size, stride)
    if tensor.elements() == 0:
        return tensor
    last = offset + sum((n - 1) * step for n, step in zip(size, stride))
    if last >= view.count:
        raise damaged(f"A tensor reaches element {last} of a storage of {view.count}.")
    if tensor.elements() > view.count:
        raise unsupported(f"A tensor shows {tensor.elements()} elements of a storage of "
                          f"{view.count}; expanded tensors are not supported.")
    return tensor


def rebuild_parameter(tensor, *rest):
    if not isinstance(tensor, Tensor):
        raise damaged("A parameter is rebuilt from something other than a tensor.")
    return tensor


# Name -> (function, smallest and largest number of arguments).
CALLS = {"collections.OrderedDict": (new_dict, 0, 1),
         "torch._utils._rebuild_tensor": (rebuild_tensor, 4, 4),
         "torch._utils._rebuild_tensor_v2": (rebuild_tensor, 6, 7),
         "torch._utils._rebuild_parameter": (rebuild_parameter, 3, 3)}


class Call:
    def __init__(self, name):
        self.name = name

    def __call__(self, arguments):
        function, least, most = CALLS[self.name]
        if type(arguments) is not tuple or not least <= len(arguments) <= most:
            raise damaged(f"{self.name} is called with other arguments than PyTorch's.")
        return function(*arguments)


def find_name(module, name):
    full = f"{module}.{name}"
    if module == "torch" and name in STORAGES:
        return StorageType(name)
    if full in CALLS:
        return Call(full)
    raise unsupported(f"The file refers to {quote(full)}, which is no part of a state dict; nothing"
                      " was run.")


class Unpickler:
    """Interprets a pickle of protocol 2 to 5 that consists of plain values, dictionaries, lists,
    tuples, storages and the calls above. Nothing that it names is imported or run."""

    CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
    LITERALS = frozenset(
        ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINSTRING",
         "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES",
         "SHORT_BINBYTES"))
    EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
    TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}

    def __init__(self, storages):
        self.storages = storages  # key -> Storage
        self.stack, self.marks, self.memo = [], [], {}

    def load(self, file):
        """The value of the pickle at the file's position, which is behind it afterwards."""
        try:
            for opcode, argument, _ in pickletools.genops(file):
                if opcode.name == "STOP":
                    return self.stack.pop()
                self.step(opcode.name, argument)
        except (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
            raise damaged("The pickle is damaged or cut short.") from error
        raise damaged("The pickle is cut short.")

    def pop_to_mark(self):
        begin = self.marks.pop()
        items = self.stack[begin:]
        del self.stack[begin:]
        return items

    def pop(self, count):
        if count > len(self.stack):
            raise damaged("The pickle takes more values than there are.")
        items = self.stack[len(self.stack) - count:]
        del self.stack[len(self.stack) - count:]
        return items

    def target(self, kind):
        if not self.stack or type(self.stack[-1]) is not kind:
            raise unsupported(f"The file changes something that is no {kind.__name__}.")
        return self.stack[-1]

    def step(self, name, argument):
        stack = self.stack
        if name in self.LITERALS:
            stack.append(argument)
        elif name in self.CONSTANTS:
            stack.append(self.CONSTANTS[name])
        elif name in self.EMPTY:
            stack.append(self.EMPTY[name]())
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(self.pop_to_mark()))
        elif name in self.TUPLES:
            stack.append(tuple(self.pop(self.TUPLES[name])))
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in ("SETITEM", "SETITEMS"):
            items = self.pop(2) if name == "SETITEM" else self.pop_to_mark()
            if len(items) % 2 != 0:
                raise damaged("The pickle sets a key without a value.")
            target = self.target(dict)
            for key, value in zip(items[::2], items[1::2]):
                set_item(target, key, value)
        elif name in ("APPEND", "APPENDS"):
            items = self.pop(1) if name == "APPEND" else self.pop_to_mark()
            self.target(list).extend(items)
        elif name not in ("PROTO", "FRAME"):
            self.step_object(name, argument)

    def step_object(self, name, argument):
        stack = self.stack
        if name == "GLOBAL":
            module, _, attribute = argument.partition(" ")
            stack.append(find_name(module, attribute))
        elif name == "STACK_GLOBAL":
            module, attribute = self.pop(2)
            if type(module) is not str or type(attribute) is not str:
                raise damaged("The pickle names something with other than text.")
            stack.append(find_name(module, attribute))
        elif name == "REDUCE":
            function, arguments = self.pop(2)
            if not isinstance(function, Call):
                raise damaged("The pickle calls something that is no function.")
            stack.append(function(arguments))
        elif name == "BUILD":
            # The attributes of an OrderedDict (_metadata) are no part of its values.
            self.pop(1)
            self.target(dict)
        elif name == "BINPERSID":
            stack.append(self.find_storage(stack.pop()))
        else:
            raise unsupported(f"The pickle has the operation {name}, which no state dict needs.")

    def find_storage(self, identity):
        """("storage", type, key, device, elements[, None or (key, offset, elements) of a view])"""
        if type(identity) is not tuple or len(identity) not in (5, 6) or identity[0] != "storage":
            raise damaged("The pickle refers to something other than a storage.")
        kind, key, count = identity[1], identity[2], identity[4]
        if not isinstance(kind, StorageType) or type(key) is not str or not is_count(count):
            raise damaged("The pickle describes a storage in another way than PyTorch.")
        storage = self.storages.setdefault(key, Storage(key, kind.dtype, kind.itemsize, count))
        if (storage.dtype, storage.count) != (kind.dtype, count):
            raise damaged(f"Storage {quote(key)} is described in two ways.")
        view = identity[5] if len(identity) == 6 else None
        if view is None:
            return View(storage, 0, count)
        if type(view) is not tuple or len(view) != 3 or not all(map(is_count, view[1:])):
            raise damaged(f"A view of storage {quote(key)} is described in another way than"
                          " PyTorch.")
        if view[1] + view[2] > count:
            raise damaged(f"A view reaches element {view[1] + view[2]} of storage {quote(key)},"
                          f" which has {count}.")
        return View(storage, view[1], view[2])


def read_zip(file, whole):
    """The pickled value of an archive; its storages then have their data."""
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
    found = [name for name in entries if name.endswith("/data.pkl") or name == "data.pkl"]
    if len(found) != 1:
        raise damaged(f"The zip archive has {len(found)} files data.pkl; a file of torch.save has"
                      " one.")
    folder = found[0][:-len("data.pkl")]
    if folder + "constants.pkl" in entries:
        raise unsupported("The file is a TorchScript program and not a state dict.")

    def content(name):
        entry = entries.get(folder + name)
        if entry is None:
            raise damaged(f"The archive has no {quote(name)}.")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise unsupported(f"{quote(name)} is compressed or encrypted, as PyTorch writes none.")
        header = whole[max(entry.header_offset, 0):][:30]
        if len(header) != 30 or bytes(header[:4]) != b"PK\x03\x04":
            raise damaged(f"{quote(name)} has no header in the archive.")
        name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
        begin = entry.header_offset + 30 + name_bytes + extra_bytes
        data = whole[begin:begin + entry.file_size]
        if len(data) != entry.file_size or zlib.crc32(data) != entry.CRC:
            raise damaged(f"{quote(name)} is damaged or cut short.")
        return data

    if folder + "byteorder" in entries and bytes(content("byteorder")) != b"little":
        raise unsupported("The file was written on a big-endian machine.")
    storages = {}
    value = Unpickler(storages).load(io.BytesIO(content("data.pkl")))
    for storage in storages.values():
        storage.data = content("data/" + storage.key)
        if len(storage.data) != storage.count * storage.itemsize:
            raise damaged(f"Storage {quote(storage.key)} has {len(storage.data)} bytes instead of"
                          f" {storage.count * storage.itemsize}.")
    return value


def read_legacy(mapped, whole):
    """The same for four pickles (magic number, version, machine, value), the list of storages, and
    the number of elements and the bytes of each."""
    magic, version, machine = (Unpickler({}).load(mapped) for _ in range(3))
    if type(magic) is not int or magic != LEGACY_MAGIC:
        raise damaged("The file has not the magic number of torch.save.")
    if type(version) is not int or version != LEGACY_VERSION:
        raise unsupported("The file has another version than 1001.")
    if type(machine) is not dict or machine.get("little_endian") is not True:
        raise unsupported("The file was written on a big-endian machine.")
    storages = {}
    value = Unpickler(storages).load(mapped)
    keys = Unpickler({}).load(mapped)
    if type(keys) is not list or not all(type(key) is str for key in keys):
        raise damaged("The file has no list of storages.")
    begin = mapped.tell()
    for key in keys:
        storage = storages.get(key)
        if storage is None:
            raise damaged(f"The file has a storage {quote(key)} that no tensor uses.")
        count = whole[begin:begin + 8]
        begin += 8
        if len(count) != 8 or struct.unpack("<q", count)[0] != storage.count:
            raise damaged(f"Storage {quote(key)} has not the {storage.count} elements that its"
                          " tensors expect.")
        storage.data = whole[begin:begin + storage.count * storage.itemsize]
        begin += storage.count * storage.itemsize
        if begin > len(whole):
            raise damaged(f"The file ends within storage {quote(key)}.")
    if begin != len(whole):
        raise damaged(f"{len(whole) - begin} bytes follow the last storage.")
    for storage in storages.values():
        if storage.data is None:
            raise damaged(f"The file has no data for storage {quote(storage.key)}.")
    return value


def read_file(file, mapped, whole):
    begin = bytes(whole[:4])
    if begin.startswith(b"PK"):
        try:
            return read_zip(file, whole)
        except (zipfile.BadZipFile, ValueError, OverflowError, struct.error, EOFError,
                NotImplementedError, OSError) as error:
            raise damaged("The zip archive is damaged or cut short.") from error
    if begin == LEGACY_BEGIN:
        return read_legacy(mapped, whole)
    if bytes(whole[257:262]) == b"ustar":
        raise unsupported("The tar format of PyTorch 0.1 is not supported.")
    raise damaged("The file is none of torch.save.")


def has_tensors(value):
    return type(value) is dict and any(isinstance(item, Tensor) for item in value.values())


def find_state_dict(value, key):
    if key is not None:
        if type(value) is not dict or key not in value:
            raise Refused(USAGE, f"The file has no entry {quote(key)}.")
        value = value[key]
        if not has_tensors(value):
            raise Refused(USAGE, f"The entry {quote(key)} holds no tensors.")
        return value
    if has_tensors(value):
        return value
    inner = {name: item for name, item in value.items()
             if has_tensors(item)} if type(value) is dict else {}
    if len(inner) == 1:
        return next(iter(inner.values()))
    for name in STATE_DICTS:
        if name in inner:
            return inner[name]
    if inner:
        names = ", ".join(quote(str(name)) for name in list(inner)[:NAMES_SHOWN])
        raise Refused(USAGE, f"Several entries hold tensors ({names}); --key chooses one.")
    raise damaged("The file holds no dictionary of tensors.")


def choose_tensors(values):
    """({name: tensor}, names of the other entries)"""
    tensors, others = {}, []
    for name, value in values.items():
        if isinstance(value, Tensor) and type(name) is str and name not in ("", "__metadata__"):
            tensors[name] = value
        else:
            others.append(str(name))
    for name in tensors:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise damaged(f"The name {quote(name)} is no Unicode text.") from None
    return tensors, others


def write_safetensors(path, tensors):
    """Larger elements come first, so that all are aligned. Returns the number of bytes."""
    order = sorted(tensors.items(), key=lambda item: -item[1].storage.itemsize)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in order:
        end = offset + tensor.byte_count()
        header[name] = {"dtype": tensor.storage.dtype, "shape": list(tensor.size),
                        "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "xb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for _, tensor in order:
                for piece in tensor.pieces():
                    out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise Refused(WRITE_FAILED, f"{path} cannot be written: {error.strerror}.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return 8 + len(text) + offset


def is_for_cifar(arch):
    return len(RESNETS[arch][0]) == 3


def shapes_of(arch, channels, classes):
    """{name: shape} of the parameters and buffers of a ResNet"""
    blocks, is_bottleneck = RESNETS[arch]
    small = is_for_cifar(arch)
    width = 16 if small else 64
    out = {}

    def add(conv, norm, inputs, outputs, kernel):
        out[conv + ".weight"] = [outputs, inputs, kernel, kernel]
        for part in ("weight", "bias", "running_mean", "running_var"):
            out[f"{norm}.{part}"] = [outputs]
        out[norm + COUNTER] = []

    add("conv1", "bn1", channels, width, 3 if small else 7)
    last = width
    for stage, count in enumerate(blocks):
        inner = width << stage
        outputs = 4 * inner if is_bottleneck else inner
        for block in range(count):
            at = f"layer{stage + 1}.{block}."
            if is_bottleneck:
                convs = [(last, inner, 1), (inner, inner, 3), (inner, outputs, 1)]
            else:
                convs = [(last, outputs, 3), (outputs, outputs, 3)]
            for number, shape in enumerate(convs, 1):
                add(f"{at}conv{number}", f"{at}bn{number}", *shape)
            if not small and last != outputs:
                add(at + "downsample.0", at + "downsample.1", last, outputs, 1)
            last = outputs
    head = "linear" if small else "fc"
    out[head + ".weight"], out[head + ".bias"] = [classes, last], [classes]
    return out


class Classifier:
    """What a folder of `hone train vision` says of a model besides its tensors."""

    def __init__(self, arch, classes, mean, std):
        self.arch, self.classes, self.mean, self.std = arch, classes, mean, std

    def fit(self, tensors):
        """The tensors under the names of the architecture. Refuses those of another one."""
        own = {}
        for name, tensor in tensors.items():
            short = name.removeprefix("module.")
            if short in own:
                raise damaged(f"The file has {quote(short)} twice.")
            own[short] = tensor
        shapes = shapes_of(self.arch, len(self.mean), len(self.classes))
        unknown = min(own.keys() - shapes.keys(), default=None)
        if unknown is not None:
            raise Refused(USAGE, f"{self.arch} has no tensor {quote(unknown)}.")
        for name, shape in shapes.items():
            if name not in own and name.endswith(COUNTER):
                own[name] = new_counter()
            self.check_tensor(name, own.get(name), shape)
        return own

    def check_tensor(self, name, tensor, shape):
        if tensor is None:
            raise Refused(USAGE, f"The file has no tensor {quote(name)} of {self.arch}.")
        if list(tensor.size) != shape:
            raise Refused(USAGE, f"{quote(name)} has the shape {list(tensor.size)}, but with"
                          f" {len(self.classes)} classes and {len(self.mean)} channels it is"
                          f" {shape} in {self.arch}.")
        kind = "I64" if name.endswith(COUNTER) else "F32"
        if tensor.storage.dtype != kind:
            raise unsupported(f"{quote(name)} is {tensor.storage.dtype}; a classifier has {kind}.")

    def config(self):
        """An image for a model of ImageNet is the middle of a larger one."""
        small = is_for_cifar(self.arch)
        side = 32 if small else 224
        return {"format": "hone-vision", "model": self.arch, "width": 16 if small else 64,
                "layers": 0, "channels": len(self.mean), "height": side, "image_width": side,
                "image_side": 0 if small else 256, "classes": self.classes, "mean": self.mean,
                "std": self.std}


def new_counter():
    """A scalar zero, which no result depends on."""
    storage = Storage("", "I64", 8, 1)
    storage.data = memoryview(bytes(8))
    return Tensor(View(storage, 0, 1), 0, (), ())


def write_classifier(folder, classifier, tensors):
    """Returns the number of bytes of the tensors' file."""
    staging = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        staging.mkdir()
        with open(staging / "config.json", "x", encoding="utf-8") as out:
            json.dump(classifier.config(), out, indent=2, ensure_ascii=False)
            out.write("\n")
            out.flush()
            os.fsync(out.fileno())
        size = write_safetensors(staging / "model.safetensors", tensors)
        os.rename(staging, folder)
    except OSError as error:
        raise Refused(WRITE_FAILED, f"{folder} cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return size


def check_target(source, target, classifier):
    try:
        if classifier is not None and os.path.lexists(target):
            raise Refused(USAGE, f"{target} exists already.")
        if target.is_dir():
            raise Refused(USAGE, f"{target} is a folder.")
    except OSError as error:
        raise Refused(WRITE_FAILED, f"{target} cannot be written: {error.strerror}.") from error
    try:
        if target.exists() and source.exists() and target.samefile(source):
            raise Refused(USAGE, "The output must not be the input.")
        if source.exists() and not source.is_file():  # opening a pipe might never end
            raise damaged("The input is no regular file.")
    except OSError as error:
        raise damaged(f"The file cannot be read: {error.strerror}.") from error


def convert(source, target, key=None, classifier=None):
    """Returns (tensors written, bytes written, names left out). Raises Refused."""
    check_target(source, target, classifier)
    try:
        file = open(source, "rb")
    except OSError as error:
        raise damaged(f"The file cannot be read: {error.strerror}.") from error
    with file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise damaged("The file is empty.") from error
        whole = memoryview(mapped)
        tensors, others = choose_tensors(find_state_dict(read_file(file, mapped, whole), key))
        size = sum(tensor.byte_count() for tensor in tensors.values())
        if size > MAX_GROWTH * len(whole):
            raise unsupported(f"The tensors share storages and would take {size} bytes, over"
                              f" {MAX_GROWTH} times the file.")
        if classifier is None:
            return len(tensors), write_safetensors(target, tensors), others
        tensors = classifier.fit(tensors)
        return len(tensors), write_classifier(target, classifier, tensors), others


def read_classes(text):
    """The lines of a file, or names with commas between them."""
    try:
        if os.path.isfile(text):
            content = pathlib.Path(text).read_text(encoding="utf-8")
            names = [line for line in content.splitlines() if line]
        else:
            names = text.split(",")
        "".join(names).encode("utf-8")
    except (OSError, ValueError) as error:
        raise Refused(USAGE, f"--classes: {text} cannot be read as text.") from error
    if not 2 <= len(names) <= MOST_CLASSES:
        raise Refused(USAGE, f"--classes has to be a file with 2 to {MOST_CLASSES} names, one a"
                      f" line, or names with commas between them; {quote(text)} has {len(names)}.")
    if len(set(names)) != len(names) or "" in names:
        raise Refused(USAGE, "--classes has a name twice, or an empty one.")
    return names


def read_classifier(options):
    """None without --arch."""
    if options.arch is None:
        if options.classes or options.mean or options.std:
            raise Refused(USAGE, "--classes, --mean and --std need --arch.")
        return None
    if options.classes is None:
        raise Refused(USAGE, "--arch needs --classes.")
    mean, std = options.mean or IMAGENET_MEAN, options.std or IMAGENET_STD
    if len(mean) not in (1, 3) or len(mean) != len(std):
        raise Refused(USAGE, "--mean and --std have a number for each of 1 or 3 channels.")
    if not all(0 <= x <= 1 for x in mean) or not all(LEAST_STD <= x <= 1 for x in std):
        raise Refused(USAGE, "--mean has numbers from 0 to 1, --std positive ones up to 1.")
    return Classifier(options.arch, read_classes(options.classes), mean, std)


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("source", metavar="IN.pth", type=pathlib.Path)
    parser.add_argument("target", metavar="OUT.safetensors|FOLDER", type=pathlib.Path)
    parser.add_argument("--key", help="entry of the file that holds the tensors")
    parser.add_argument("--arch", choices=RESNETS,
                        help="write the folder of a classifier of images of this architecture")
    parser.add_argument("--classes", metavar="FILE|NAMES",
                        help="its classes: a file with a name a line, or names with commas")
    parser.add_argument("--mean", nargs="+", type=float, metavar="X",
                        help="mean of each channel, 0 to 1 (ImageNet's)")
    parser.add_argument("--std", nargs="+", type=float, metavar="X",
                        help="deviation of each channel (ImageNet's)")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = read_arguments(arguments)
    for stream in (sys.stdout, sys.stderr):  # names of files that the terminal cannot show
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        classifier = read_classifier(options)
        count, size, others = convert(options.source, options.target, options.key, classifier)
    except Refused as refusal:
        print(f"pth_to_safetensors: {options.source}: {refusal}", file=sys.stderr)
        return refusal.status
    if others:
        names = ", ".join(quote(name) for name in others[:NAMES_SHOWN])
        hidden = len(others) - NAMES_SHOWN
        more = f" and {hidden} more" if hidden > 0 else ""
        print(f"pth_to_safetensors: left out, no tensors: {names}{more}", file=sys.stderr)
    print(f"{options.target}: {count} tensors, {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
