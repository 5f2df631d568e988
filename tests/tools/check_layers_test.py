# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_layers


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, *includes):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"#include {include}\n" for include in includes))

    def findings(self):
        return list(check_layers.find_include_violations(self.root))

    def expect_one(self, part):
        findings = self.findings()
        self.assertEqual(len(findings), 1, findings)
        self.assertIn(part, findings[0])

    def test_downward_includes_are_fine(self):
        self.write("hone/core/a.h", "<vector>")
        self.write("hone/kernels/norm/b.h", '"hone/core/a.h"')
        self.write("hone/infer/model/c.cc", '"hone/kernels/norm/b.h"', "<fmt/format.h>")
        self.assertEqual(self.findings(), [])

    def test_upward_include_is_found(self):
        self.write("hone/kernels/b.h")
        self.write("hone/core/a.h", '"hone/kernels/b.h"')
        self.expect_one("core may not include kernels")

    def test_infer_and_train_never_meet(self):
        self.write("hone/train/b.h")
        self.write("hone/infer/a.h", '"hone/train/b.h"')
        self.expect_one("infer may not include train")

    def test_app_sees_only_the_facade_of_infer(self):
        self.write("hone/infer/engine.h")
        self.write("hone/infer/kv/cache.h")
        self.write("hone/app/good.cc", '"hone/infer/engine.h"')
        self.write("hone/app/bad.cc", '"hone/infer/kv/cache.h"')
        self.expect_one("hone/app/bad.cc: app may include only infer/*.h")

    def test_infer_names_no_family(self):
        self.write("hone/model_io/family/family_table.cc")
        (self.root / "hone/model_io/family/family_table.cc").write_text(
            'Family a() { return llama_like("qwen2", "Q", "q"); }\n'
            'Family b() { return {.name = "gemma3_text"}; }\n')
        self.write("hone/infer/good.cc")
        (self.root / "hone/infer/good.cc").write_text("// as in llama.cpp\n")
        self.assertEqual(list(check_layers.find_family_names(self.root)), [])
        (self.root / "hone/infer/bad.cc").write_text('\nif (name == "Gemma3") {}\n')
        (self.root / "hone/model_io/ok.cc").write_text("qwen2\n")
        findings = list(check_layers.find_family_names(self.root))
        self.assertEqual(len(findings), 1, findings)
        self.assertIn("hone/infer/bad.cc:2: infer may not name a family (Gemma3)", findings[0])

    def test_train_belongs_to_app_torch(self):
        self.write("hone/train/b.h")
        self.write("hone/app/torch/good.cc", '"hone/train/b.h"', "<torch/torch.h>")
        self.write("hone/app/bad.cc", '"hone/train/b.h"')
        self.expect_one("hone/app/bad.cc: app may not include train")

    def test_report_sees_only_parts_of_measure(self):
        self.write("hone/measure/statistics.h")
        self.write("hone/measure/measure.h")
        self.write("hone/report/good.cc", '"hone/measure/statistics.h"')
        self.write("hone/report/bad.cc", '"hone/measure/measure.h"')
        self.expect_one("hone/report/bad.cc: report may include only measure/pareto.h and"
                        " measure/statistics.h of measure")

    def test_train_sees_only_the_methods_and_recipes_of_compress(self):
        self.write("hone/compress/recipe.h")
        self.write("hone/compress/gate.h")
        self.write("hone/train/nn/good.cc", '"hone/compress/recipe.h"')
        self.write("hone/train/nn/bad.cc", '"hone/compress/gate.h"')
        self.expect_one("train may include only")

    def test_only_the_tuner_of_train_sees_tune(self):
        self.write("hone/tune/search/a.h")
        self.write("hone/train/tuner/good.cc", '"hone/tune/search/a.h"')
        self.write("hone/train/nn/bad.cc", '"hone/tune/search/a.h"')
        self.expect_one("hone/train/nn/bad.cc: train may not include tune")

    def test_bench_is_seen_by_cli_alone(self):
        self.write("hone/bench/a.h")
        self.write("hone/cli/good.cc", '"hone/bench/a.h"')
        self.write("hone/app/bad.cc", '"hone/bench/a.h"')
        self.expect_one("hone/app/bad.cc: app may not include bench")

    def test_circles_between_folders_and_files_are_found(self):
        self.write("hone/train/optim/a.h", '"hone/train/interop.h"')
        self.write("hone/train/interop.h")
        self.write("hone/train/trainer/b.cc", '"hone/train/optim/a.h"')
        includes = check_layers.read_includes(self.root)
        self.assertEqual(list(check_layers.find_cycles(includes, "hone/train")), [])
        self.write("hone/train/interop.cc", '"hone/train/trainer/b.h"')
        includes = check_layers.read_includes(self.root)
        findings = list(check_layers.find_cycles(includes, "hone/train"))
        self.assertEqual(len(findings), 3, findings)
        self.assertIn("hone/train/interop.cc -> hone/train/trainer/b.h", findings[0])

    def test_libtorch_headers_outside_train_are_found(self):
        self.write("hone/tune/a.cc", "<torch/torch.h>")
        self.expect_one("LibTorch")

    def test_fmt_in_a_header_is_found(self):
        self.write("hone/app/a.h", "<fmt/format.h>")
        self.expect_one("no header includes fmt")

    def test_cuda_headers_outside_device_code_are_found(self):
        self.write("hone/kernels/norm/a.cu", "<cuda_runtime.h>")
        self.write("hone/kernels/norm/a.cc", "<cuda_runtime.h>")
        self.expect_one("hone/kernels/norm/a.cc: CUDA headers")

    def test_isa_file_reaches_only_intrinsics_and_its_kernel(self):
        self.write("hone/core/index.h", "<cstdint>")
        self.write("hone/core/check.h")
        self.write("hone/kernels/gemm/tile.h", '"hone/core/index.h"', '"hone/core/check.h"')
        self.write("hone/kernels/gemm/q4_avx2.cc", "<immintrin.h>", '"hone/kernels/gemm/tile.h"')
        self.expect_one("reaches hone/core/check.h through hone/kernels/gemm/tile.h")
        self.write("hone/kernels/gemm/tile.h", "<cstdint>")
        self.assertEqual(self.findings(), [])

    def test_missing_header_is_found(self):
        self.write("hone/core/a.cc", '"hone/core/gone.h"')
        self.expect_one("does not exist")

    def test_unknown_layer_is_found(self):
        self.write("hone/core/a.h")
        self.write("hone/misc/b.cc", '"hone/core/a.h"')
        self.expect_one("misc is no layer")


if __name__ == "__main__":
    unittest.main()
