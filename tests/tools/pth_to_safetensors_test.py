# SPDX-License-Identifier: Apache-2.0
import collections
import contextlib
import io
import json
import math
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import pth_to_safetensors
from pth_files import (ITEM_BYTES, OldTensor, Parameter, Storage, Tensor, floats, legacy_file,
                       pickled, zip_file)

WRITERS = {"zip": zip_file, "legacy": legacy_file}
TYPES = {"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16",
         "BFloat16Storage": "BF16", "LongStorage": "I64", "IntStorage": "I32",
         "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8", "BoolStorage": "BOOL"}


def read_safetensors(path):
    """{name: (type, shape, bytes)}; checks that the tensors tile the data, aligned."""
    whole = path.read_bytes()
    begin = 8 + struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:begin])
    assert begin % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}
    out, end = {}, 0
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        assert first == end, name
        end = last
        out[name] = (entry["dtype"], entry["shape"], whole[begin + first:begin + last])
    assert begin + end == len(whole)
    return out


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source, self.target = self.folder / "in.pth", self.folder / "out.safetensors"
        # Thousands of files of a few bytes are written.
        patch = unittest.mock.patch("os.fsync")
        patch.start()
        self.addCleanup(patch.stop)

    def run_tool(self, content, *options):
        """(status, stderr)"""
        self.source.write_bytes(content)
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            arguments = [str(self.source), str(self.target), *options]
            status = pth_to_safetensors.main(arguments)
        return status, err.getvalue()

    def converted(self, content, *options):
        status, err = self.run_tool(content, *options)
        self.assertEqual(status, 0, err)
        return read_safetensors(self.target)

    def refusal(self, content, status, *options):
        """The message of a refusal with this status, which left nothing."""
        got, err = self.run_tool(content, *options)
        self.assertEqual(got, status, err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.endswith(".\n"), err)
        self.assertLess(len(err), 600)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["in.pth"])
        return err


class ConvertTest(Case):
    def test_every_type_keeps_its_bytes_in_both_formats(self):
        tensors = {}
        for kind, item in ITEM_BYTES.items():
            values = bytes(i % 2 if kind == "BoolStorage" else 37 * i % 256
                           for i in range(6 * item))
            tensors[kind] = Tensor(Storage(kind, values), (2, 3))
        for name, write in WRITERS.items():
            got = self.converted(write(tensors))
            self.assertEqual({key: value[0] for key, value in got.items()}, TYPES, name)
            for kind, tensor in tensors.items():
                self.assertEqual(got[kind][1:], ([2, 3], tensor.storage.data), (name, kind))

    def test_views_are_written_as_their_elements(self):
        for kind, item in ITEM_BYTES.items():
            storage = Storage(kind, bytes(i % 2 for i in range(60 * item)))
            if kind != "BoolStorage":
                storage.data = bytes(i % 251 for i in range(60 * item))
            views = {"transposed": Tensor(storage, (5, 4), (1, 5)),
                     "column": Tensor(storage, (12,), (5,), offset=2),
                     "part": Tensor(storage, (3, 2), (10, 1), offset=7),
                     "channels_last": Tensor(storage, (2, 3, 2, 5), (30, 1, 15, 3)),
                     "one_of_each": Tensor(storage, (1, 3, 1), (99, 4, 77), offset=1),
                     "expanded": Tensor(storage, (4, 3), (7, 0)),
                     "rows_again": Tensor(storage, (3, 4), (0, 1), offset=5),
                     "scalar": Tensor(storage, (), (), offset=59),
                     "empty": Tensor(storage, (0, 3), (3, 1)),
                     "whole": Tensor(storage, (60,))}
            for write in WRITERS.values():
                got = self.converted(write(views))
                self.assertEqual(got.keys(), views.keys())
                for name, view in views.items():
                    self.assertEqual(got[name][1:], (list(view.size), view.values()), (kind, name))

    def test_legacy_views_of_a_storage_begin_at_their_offset(self):
        whole = floats(*range(10))
        content = legacy_file({"x": OldTensor(whole, (2,), offset=1)})
        self.assertEqual(self.converted(content)["x"][2], struct.pack("<2f", 1, 2))
        whole.view = ("9", 4, 5)
        content = legacy_file({"x": OldTensor(whole, (2,), offset=1)})
        self.assertEqual(self.converted(content)["x"][2], struct.pack("<2f", 5, 6))
        self.target.unlink()
        self.assertIn("reaches element 5", self.refusal(
            legacy_file({"x": OldTensor(whole, (2,), offset=4)}), 3))
        whole.view = ("9", 6, 5)
        self.assertIn("which has 10", self.refusal(
            legacy_file({"x": OldTensor(whole, (2,), offset=4)}), 3))

    def test_the_state_dict_is_found_and_chosen(self):
        def weights(value):
            return collections.OrderedDict(w=Tensor(floats(value), (1,)))

        def value_of(content, *options):
            return struct.unpack("<f", self.converted(content, *options)["w"][2])[0]

        for write in WRITERS.values():
            self.assertEqual(value_of(write(weights(1))), 1)
            self.assertEqual(value_of(write({"net": weights(2), "epoch": 3})), 2)
            both = write({"ema": weights(3), "state_dict": weights(4), "optimizer": {
                "state": {0: {"step": Tensor(floats(9), (1,))}}, "param_groups": [{"lr": 0.1}]}})
            self.assertEqual(value_of(both), 4)
            self.assertEqual(value_of(both, "--key", "ema"), 3)
            self.assertIn("'nothing'", self.refusal_again(both, 2, "--key", "nothing"))
            self.assertIn("no tensors", self.refusal_again(both, 2, "--key", "optimizer"))
            self.target.unlink()
            self.assertIn("'a', 'b'", self.refusal(write({"a": weights(1), "b": weights(2)}), 2))
            self.assertIn("no dictionary", self.refusal(write([1, 2]), 3))
            self.assertIn("no dictionary", self.refusal(write({"lr": 0.1}), 3))

    def refusal_again(self, content, status, *options):
        """A refusal that leaves the earlier output as it was."""
        before = self.target.read_bytes()
        got, err = self.run_tool(content, *options)
        self.assertEqual(got, status, err)
        self.assertEqual(self.target.read_bytes(), before)
        return err

    def test_parameters_metadata_and_tied_tensors(self):
        tied = floats(1, 2, 3, 4)
        state = collections.OrderedDict(a=Parameter(Tensor(tied, (2, 2))),
                                        b=Tensor(tied, (4,)), count=7)
        state._metadata = collections.OrderedDict([("", {"version": 1})])
        state["naïve \U0001f600"] = Tensor(tied, (1,), offset=3)
        for write in WRITERS.values():
            status, err = self.run_tool(write(state))
            self.assertEqual(status, 0, err)
            self.assertIn("'count'", err)
            got = read_safetensors(self.target)
            self.assertEqual(set(got), {"a", "b", "naïve \U0001f600"})
            self.assertEqual(got["a"][2], got["b"][2])

    def test_pickles_of_python_2_and_of_protocol_4(self):
        pairs = b"".join((b"ccollections\nOrderedDict\n", b"(]]", b"(U\x01xK\x01e", b"atR."))
        storage = b"ctorch\nFloatStorage\n"
        tensor = (b"ctorch._utils\n_rebuild_tensor\n((U\x07storage" + storage +
                  b"U\x010U\x03cpuK\x02tQK\x00(K\x02t(K\x01ttR")
        old = pairs.replace(b"K\x01e", tensor + b"e")
        content = legacy_file({"x": Tensor(floats(5, 6), (2,))}, pickle_bytes=b"\x80\x02" + old)
        self.assertEqual(self.converted(content)["x"][2], struct.pack("<2f", 5, 6))
        new = (b"\x80\x04}\x94\x8c\x01x\x8c\x0ctorch._utils\x8c\x0f_rebuild_tensor\x93((\x8c\x07"
               b"storage\x8c\x05torch\x8c\x0cFloatStorage\x93\x8c\x010\x8c\x03cpuK\x02tQK\x00K\x02"
               b"\x85K\x01\x85tRs.")
        content = zip_file({"x": Tensor(floats(5, 6), (2,))}, pickle_bytes=new)
        self.assertEqual(self.converted(content)["x"][2], struct.pack("<2f", 5, 6))

    def test_what_cannot_be_read_or_written(self):
        good = zip_file({"x": Tensor(floats(1), (1,))})
        self.assertIn("none of torch.save", self.refusal(b"\x00" * 400, 3))
        self.assertIn("empty", self.refusal(b"", 3))
        self.assertIn("tar", self.refusal(b"\x00" * 257 + b"ustar" + b"\x00" * 99, 4))
        self.assertIn("big-endian", self.refusal(legacy_file({}, little=False), 4))
        self.assertIn("big-endian", self.refusal(zip_file({}, byteorder=b"big"), 4))
        deflated = zip_file({"x": Tensor(floats(*[0] * 500), (500,))},
                            compression=zipfile.ZIP_DEFLATED)
        self.assertIn("compressed", self.refusal(deflated, 4))
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("a/data.pkl", b"\x80\x02}.")
            archive.writestr("a/constants.pkl", b"\x80\x02).")
        self.assertIn("TorchScript", self.refusal(out.getvalue(), 4))
        self.source.write_bytes(good)
        missing = self.folder / "none" / "out"
        for source, target, status in ((self.source, self.source, 2), (self.source, self.folder, 2),
                                       (self.source, missing, 1), (missing, self.target, 3),
                                       (self.folder, self.target, 3)):
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                got = pth_to_safetensors.main([str(source), str(target)])
            self.assertEqual((got, err.getvalue().count("\n")), (status, 1), err.getvalue())
        self.assertEqual(self.source.read_bytes(), good)
        with unittest.mock.patch("os.replace", side_effect=OSError(28, "No space left on device")):
            self.assertIn("No space left", self.refusal(good, 1))

    def test_a_pipe_is_refused_instead_of_waited_for(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(pth_to_safetensors.main([str(pipe), str(self.target)]), 3)
        self.assertIn("no regular file", err.getvalue())


class HostileTest(Case):
    def both(self, pickle_bytes, status):
        """The refusals of a pickle in both formats, for a storage "0" of two floats."""
        value = {"x": Tensor(floats(1, 2), (2,))}
        return [self.refusal(write(value, pickle_bytes=pickle_bytes), status)
                for write in WRITERS.values()]

    def test_no_name_but_those_of_tensors_is_resolved(self):
        mark = self.folder / "ran"
        call = f"open({str(mark)!r}, 'w')".encode()
        text = b"X" + struct.pack("<I", len(call)) + call
        short = b"\x8c" + bytes([len(call)]) + call
        for name, code in {
                "builtins.eval": b"\x80\x02cbuiltins\neval\n" + text + b"\x85R.",
                "builtins.exec": b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93" + short + b"\x85R.",
                "posix.system": b"\x80\x02}(X\x01\x00\x00\x00xcposix\nsystem\n" + text + b"\x85Ru.",
                "torch.load": b"\x80\x02ctorch\nload\n" + text + b"\x85R.",
                "torch._utils._rebuild_qtensor": b"\x80\x02ctorch._utils\n_rebuild_qtensor\n)R.",
                "torch.ComplexFloatStorage": b"\x80\x02ctorch\nComplexFloatStorage\n.",
                "collections.Counter": b"\x80\x02ccollections\nCounter\n)R.",
                "torch._utils.__builtins__": b"\x80\x02ctorch._utils\n__builtins__\n.",
                "torch._utils.os": b"\x80\x02ctorch\n_utils.os\n.",
                "INST": b"\x80\x02(" + text + b"ibuiltins\neval\n.",
                "EXT1": b"\x80\x02\x82\x01.",
                "PERSID": b"\x80\x02Pstorage\n."}.items():
            for err in self.both(code, 4):
                self.assertIn(name, err)
        self.assertFalse(mark.exists())

    def test_a_class_that_runs_a_command_when_it_is_unpickled(self):
        class Evil:
            def __reduce__(self):
                return os.system, ("touch " + str(mark),)

        mark = self.folder / "ran"
        for write in WRITERS.values():
            self.assertIn("system", self.refusal(write({"x": Evil()}), 4))
        self.assertFalse(mark.exists())

    def test_objects_are_neither_made_nor_changed(self):
        rebuilt, _ = pickled(Tensor(floats(1, 2), (2,)), legacy=False)
        tensor = rebuilt[2:-1]
        for code, status in (
                (b"\x80\x02ctorch\nFloatStorage\n)R.", 3),            # a class is called
                (b"\x80\x02ctorch\nFloatStorage\n)\x81.", 4),         # NEWOBJ
                (b"\x80\x02ccollections\nOrderedDict\n)\x81.", 4),
                (b"\x80\x02X\x01\x00\x00\x00xN\x85R.", 3),            # text is called
                (b"\x80\x02" + tensor + b"}b.", 4),                   # BUILD on a tensor
                (b"\x80\x02ccollections\nOrderedDict\n}b.", 4),       # and on a function
                (b"\x80\x02" + tensor + b"NNs.", 4),                  # an item of a tensor
                (b"\x80\x02)Na.", 4),                                 # appends to a tuple
                (b"\x80\x02}(NNNu.", 3), (b"\x80\x02NQ.", 3), (b"\x80\x02)Q.", 3),
                (b"\x80\x02h\x05.", 3), (b"\x80\x02R.", 3), (b"\x80\x02t.", 3), (b"\x80\x02.", 3),
                (b"\x80\x02q\x00.", 3), (b"\x80\x02\x85.", 3), (b"\x80\x02\xff.", 3)):
            self.both(code, status)

    def test_calls_take_only_what_they_take_in_pytorch(self):
        head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n"
        for arguments in (b")", b"(NK\x00))NNt", b"(NK\x00K\x02K\x01\x89}t", b"]", b"(NNNNNNNNNt"):
            self.both(head + arguments + b"R.", 3)
        self.both(b"\x80\x02ctorch._utils\n_rebuild_parameter\n(N\x89}tR.", 3)
        self.both(b"\x80\x02ccollections\nOrderedDict\nK\x05\x85R.", 3)
        self.both(b"\x80\x02ccollections\nOrderedDict\n]K\x05a\x85R.", 3)

    def test_storages_are_described_as_pytorch_does(self):
        def identity(*parts):
            return pickle.dumps({"x": parts}, 2)

        self.both(identity("storage").replace(b"\x85q", b"\x85Qq"), 3)
        kind = b"ctorch\nFloatStorage\n"
        for parts in (b"X\x06\x00\x00\x00moduleNNNN", b"X\x07\x00\x00\x00storageNNNN",
                      b"X\x07\x00\x00\x00storage" + kind + b"K\x00NK\x02",
                      b"X\x07\x00\x00\x00storage" + kind + b"X\x01\x00\x00\x000NJ\xff\xff\xff\xff",
                      b"X\x07\x00\x00\x00storage" + kind + b"X\x01\x00\x00\x000N\x88",
                      b"X\x07\x00\x00\x00storage" + kind + b"X\x01\x00\x00\x000NK\x02NN",
                      b"X\x07\x00\x00\x00storage" + kind + b"X\x01\x00\x00\x000NK\x02)"):
            self.both(b"\x80\x02(" + parts + b"tQ.", 3)

    def test_sizes_that_do_not_fit_the_storage(self):
        storage = floats(1, 2, 3, 4)
        for size, stride, offset in (((5,), (1,), 0), ((2, 2), (3, 1), 1), ((1,), (1,), 4),
                                     ((2**62,), (1,), 0), ((2**61, 2**61), (2**61, 1), 0),
                                     ((2,), (2**62,), 0), ((1,), (1,), 2**62), ((-1,), (1,), 0),
                                     ((2,), (-1,), 1), ((2,), (1,), -1), ((2**80,), (1,), 0),
                                     ((True,), (1,), 0), ((1.0,), (1,), 0), ((2,), (1, 1), 0),
                                     ((1,) * 65, (1,) * 65, 0)):
            for write in WRITERS.values():
                tensor = Tensor(storage, size, stride, offset)
                self.refusal(write({"x": tensor}), 3)
        for write in WRITERS.values():
            # What a view shows often would fill the disk.
            err = self.refusal(write({"x": Tensor(storage, (2**40,), (0,))}), 4)
            self.assertIn("expanded", err)

    def test_storages_that_are_not_as_large_as_they_say(self):
        for count in (1, 3, 2**40, 2**62):
            lying = Storage("FloatStorage", struct.pack("<2f", 1, 2), count=count)
            for write in WRITERS.values():
                err = self.refusal(write({"x": Tensor(lying, (1,))}), 3)
                self.assertIn("torage", err)
        content = legacy_file({"x": Tensor(floats(1, 2), (2,))})
        self.refusal(content[:-16] + struct.pack("<q", -2) + content[-8:], 3)

    def test_shared_storages_do_not_fill_the_disk(self):
        storage = floats(*range(4000))
        tensors = {str(i): Tensor(storage, (4000,)) for i in range(100)}
        for write in WRITERS.values():
            self.assertIn("16 times", self.refusal(write(tensors), 4))

    def test_a_key_that_would_take_forever_to_hash_is_refused(self):
        doubled = b")" + b"q\x00h\x00\x86" * 60
        for err in self.both(b"\x80\x02}" + doubled + b"Ns.", 4):
            self.assertIn("tuple", err)

    def test_names_of_the_file_do_not_reach_the_terminal_unescaped(self):
        for write in WRITERS.values():
            content = write({"\x1b[2Jx\n": 1, "w": Tensor(floats(1), (1,))})
            status, err = self.run_tool(content)
            self.assertEqual((status, err.count("\n")), (0, 1))
            self.assertNotIn("\x1b", err)
            self.target.unlink()
        for err in self.both(b"\x80\x04\x8c\x05\x1b[2J\n\x8c\x01x\x93.", 4):
            self.assertNotIn("\x1b", err)

    def test_a_name_that_is_no_unicode_text_is_refused(self):
        for write in WRITERS.values():
            self.assertIn("Unicode", self.refusal(write({"\ud800": Tensor(floats(1), (1,))}), 3))

    def test_every_truncation_is_refused(self):
        value = {"state_dict": {"x": Tensor(floats(1, 2, 3, 4), (2, 2), (1, 2))}, "epoch": 3}
        for write in WRITERS.values():
            content = write(value)
            for length in range(len(content)):
                status, err = self.run_tool(content[:length])
                self.assertIn(status, (3, 4), length)
                self.assertEqual(err.count("\n"), 1, err)
            self.assertFalse(self.target.exists())
            self.assertEqual(self.run_tool(content)[0], 0)
            self.target.unlink()

    def test_every_changed_byte_is_refused_or_changes_only_values(self):
        value = {"x": Tensor(floats(1, 2, 3, 4), (2, 2), (1, 2)), "y": 3}
        for write in WRITERS.values():
            content = write(value)
            for position in range(len(content)):
                for change in (0x01, 0xFF):
                    changed = bytearray(content)
                    changed[position] ^= change
                    status, err = self.run_tool(bytes(changed))
                    self.assertIn(status, (0, 2, 3, 4), (position, change))
                    self.assertLessEqual(err.count("\n"), 1, err)
                    if status == 0:
                        read_safetensors(self.target)

    def test_a_changed_value_in_an_archive_is_noticed(self):
        content = bytearray(zip_file({"x": Tensor(floats(1234.5), (1,))}))
        content[content.find(struct.pack("<f", 1234.5))] ^= 1
        self.assertIn("damaged", self.refusal(bytes(content), 3))


class ClassifierTest(Case):
    NAMES = "cat,dog,newt"
    OPTIONS = ("--arch", "resnet20", "--classes", NAMES)

    def setUp(self):
        super().setUp()
        self.target = self.folder / "model"

    @staticmethod
    def weights(prefix="", counters=True):
        out = {}
        for name, shape in pth_to_safetensors.shapes_of("resnet20", 3, 3).items():
            counter = name.endswith("num_batches_tracked")
            kind = "LongStorage" if counter else "FloatStorage"
            size = ITEM_BYTES[kind] * math.prod(shape)
            if counters or not counter:
                value = (prefix + name).encode() * (size // len(prefix + name) + 1)
                out[prefix + name] = Tensor(Storage(kind, value[:size]), shape)
        return out

    def test_the_folder_has_the_tensors_and_what_hone_needs_to_know(self):
        for write in WRITERS.values():
            weights = self.weights()
            status, err = self.run_tool(write({"state_dict": weights}), *self.OPTIONS)
            self.assertEqual((status, err), (0, ""))
            config = json.loads((self.target / "config.json").read_text())
            self.assertEqual(config, {
                "format": "hone-vision", "model": "resnet20", "width": 16, "layers": 0,
                "channels": 3, "height": 32, "image_width": 32, "image_side": 0,
                "classes": ["cat", "dog", "newt"], "mean": [0.485, 0.456, 0.406],
                "std": [0.229, 0.224, 0.225]})
            got = read_safetensors(self.target / "model.safetensors")
            self.assertEqual(got.keys(), weights.keys())
            for name, tensor in weights.items():
                self.assertEqual(got[name][2], tensor.storage.data, name)
            self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                             ["in.pth", "model"])
            shutil.rmtree(self.target)

    def test_a_prefix_is_taken_off_and_counters_may_be_missing(self):
        weights = self.weights(prefix="module.", counters=False)
        self.assertEqual(self.run_tool(legacy_file(weights), *self.OPTIONS)[0], 0)
        got = read_safetensors(self.target / "model.safetensors")
        self.assertEqual(got.keys(), self.weights().keys())
        self.assertEqual(got["bn1.num_batches_tracked"], ("I64", [], bytes(8)))
        self.assertEqual(got["conv1.weight"][2], weights["module.conv1.weight"].storage.data)

    def test_classes_come_from_a_file_and_statistics_from_options(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as names:
            names.write("a, b\r\n\nc\u00e9\nd\n")
            names.flush()
            self.assertEqual(self.run_tool(
                zip_file(self.weights()), "--arch", "resnet20", "--classes", names.name,
                "--mean", "0.1", "0.2", "0.3", "--std", "0.4", "0.5", "1")[0], 0)
        config = json.loads((self.target / "config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["classes"], ["a, b", "c\u00e9", "d"])
        self.assertEqual((config["mean"], config["std"]), ([0.1, 0.2, 0.3], [0.4, 0.5, 1]))

    def test_a_network_for_imagenet_takes_the_middle_of_larger_images(self):
        config = pth_to_safetensors.Classifier("resnet50", ["a", "b"], (0,) * 3, (1,) * 3).config()
        self.assertEqual((config["height"], config["image_side"], config["width"]), (224, 256, 64))

    def test_what_does_not_fit_the_architecture_is_refused(self):
        def message(change, status=2, options=self.OPTIONS):
            weights = self.weights()
            change(weights)
            return self.refusal(zip_file(weights), status, *options)

        nothing = lambda weights: None
        self.assertIn("'layer1.3.conv1.weight'",
                      message(nothing, options=("--arch", "resnet32", "--classes", self.NAMES)))
        self.assertIn("resnet18 has no tensor",
                      message(nothing, options=("--arch", "resnet18", "--classes", self.NAMES)))
        self.assertIn("shape [3, 64]",
                      message(nothing, options=("--arch", "resnet20", "--classes", "a,b")))
        self.assertIn("no tensor 'shortcut.0.weight'",
                      message(lambda w: w.update({"shortcut.0.weight": Tensor(floats(1), (1,))})))
        self.assertIn("'bn1.running_var'", message(lambda w: w.pop("bn1.running_var")))
        self.assertIn("'bn1.bias' twice", message(
            lambda w: w.update({"module.bn1.bias": w["bn1.bias"]}), status=3))
        half = Tensor(Storage("HalfStorage", bytes(32)), (16,))
        self.assertIn("is F16", message(lambda w: w.update({"bn1.bias": half}), status=4))

    def test_wrong_options_are_refused(self):
        content = zip_file(self.weights())
        for word, *options in (("need --arch", "--classes", "a,b"),
                               ("need --arch", "--mean", "0.5"),
                               ("needs --classes", "--arch", "resnet20"),
                               ("twice", "--arch", "resnet20", "--classes", "a,a,b"),
                               ("empty", "--arch", "resnet20", "--classes", "a,,b"),
                               ("2 to 65535", "--arch", "resnet20", "--classes", "a"),
                               ("3 channels", *self.OPTIONS, "--mean", "0.5"),
                               ("0 to 1", *self.OPTIONS, "--mean", "0", "0", "127"),
                               ("0 to 1", *self.OPTIONS, "--mean", "0", "0", "nan"),
                               ("positive", *self.OPTIONS, "--std", "1", "0", "1")):
            self.assertIn(word, self.refusal(content, 2, *options), options)

    def test_what_exists_is_not_replaced(self):
        self.target.mkdir()
        status, err = self.run_tool(zip_file(self.weights()), *self.OPTIONS)
        self.assertEqual(status, 2, err)
        self.assertIn("exists already", err)
        self.assertEqual(list(self.target.iterdir()), [])


class RealFilesTest(Case):
    def test_the_published_resnet20_of_cifar10(self):
        data = pathlib.Path(os.environ.get("HONE_TEST_DATA", ""))
        source = data / "vision/cifar10/resnet20-12fca82f.th"
        if not source.is_file():
            self.skipTest("HONE_TEST_DATA has no vision/cifar10/resnet20-12fca82f.th")
        got = self.converted(source.read_bytes())
        values = sum(len(entry[2]) // 4 for name, entry in got.items() if "running" not in name)
        self.assertEqual(values, 269722)
        self.assertEqual(got["module.linear.weight"][:2], ("F32", [10, 64]))
        self.assertEqual(got["module.layer3.2.conv2.weight"][:2], ("F32", [64, 64, 3, 3]))
        self.assertEqual(len(got), 1 + 4 + 18 * 5 + 2)

    SCRIPT = """
import sys, torch
from safetensors.torch import load_file
folder, step = sys.argv[1:]
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
net = net.to(memory_format=torch.channels_last)
state = net.state_dict()
x = torch.randn(6, 5)
state.update(t=x.t(), part=x[1:4, ::2], tied=x, half=x.half(), bf16=x.bfloat16(), wide=x.double(),
             mask=x > 0, count=torch.arange(7), small=torch.arange(7, dtype=torch.int8),
             scalar=torch.tensor(2.5), empty=torch.zeros(0, 3), parameter=torch.nn.Parameter(x))
if step == "write":
    torch.save({"state_dict": state, "epoch": 3}, folder + "/zip.pth")
    torch.save(state, folder + "/legacy.pth", _use_new_zipfile_serialization=False)
else:
    for name in ("zip", "legacy"):
        got = load_file(f"{folder}/{name}.safetensors")
        assert got.keys() == state.keys(), (name, got.keys() ^ state.keys())
        for key, value in state.items():
            assert got[key].dtype == value.dtype and got[key].shape == value.shape, (name, key)
            assert torch.equal(got[key], value), (name, key)
"""

    def test_files_of_pytorch_itself(self):
        python = os.environ.get("HONE_PEER_PYTHON", "")
        if not python:
            self.skipTest("HONE_PEER_PYTHON is not set")
        look = "import importlib.util as u; exit(not (u.find_spec('torch') and" \
               " u.find_spec('safetensors')))"
        if subprocess.run([python, "-c", look], check=False).returncode != 0:
            self.skipTest("HONE_PEER_PYTHON has no torch and safetensors")
        command = [python, "-c", self.SCRIPT, str(self.folder)]
        subprocess.run([*command, "write"], check=True)
        for name in ("zip", "legacy"):
            with contextlib.redirect_stdout(io.StringIO()):
                source, target = (self.folder / f"{name}.{end}" for end in ("pth", "safetensors"))
                self.assertEqual(pth_to_safetensors.main([str(source), str(target)]), 0, name)
        subprocess.run([*command, "compare"], check=True)


if __name__ == "__main__":
    unittest.main()
