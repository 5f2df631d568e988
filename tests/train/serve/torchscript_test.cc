// SPDX-License-Identifier: Apache-2.0
// Which forms of TorchScript work, which do not, and what is written.
#include "hone/train/serve/torchscript.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn.h>

#include <string>

#include "hone/core/file/file_io.h"
#include "hone/train/compress/quantize.h"
#include "hone/train/relative_error.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"
#include "tests/train/scripted_measurer.h"

namespace hone::nn {
namespace {

using hone::test::error_of;
using test::ScriptedMeasurer;
using testing::HasSubstr;
using torch::Tensor;
using torch::nn::Sequential;

Sequential make_conv_net() {
  torch::manual_seed(1);
  Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                 torch::nn::BatchNorm2d(8), torch::nn::ReLU(), torch::nn::Dropout(0.5));
  net->train();
  return net;
}

Tensor small_images() { return at::linspace(-1, 1, 2 * 3 * 8 * 8).sin().reshape({2, 3, 8, 8}); }

ScriptedMeasurer form_takes(double seconds) {
  ScriptedMeasurer measurer;
  measurer.seconds["form"] = seconds;
  return measurer;
}

// A file that Python would have written: a module with a parameter, and code.
std::filesystem::path write_script(const std::filesystem::path& folder, const std::string& code) {
  torch::jit::Module module("__torch__.Net");
  module.register_parameter("weight", at::linspace(-1, 1, 3 * 5).reshape({5, 3}), false);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define(code);
  const std::filesystem::path file = folder / "net.pt";
  module.save(file.string());
  return file;
}
constexpr const char* kCode =
    "def forward(self, x):\n"
    "    return torch.relu(torch.matmul(x, self.weight.t()))\n";

TEST(TorchScript, traces_freezes_and_optimizes_a_module) {
  Sequential net = make_conv_net();
  ScriptedMeasurer measurer = form_takes(0.5);
  const ScriptReport report = try_script(net, small_images(), measurer);
  ASSERT_EQ(report.forms.size(), 3U);
  for (const ScriptForm& form : report.forms) {
    EXPECT_TRUE(form.works) << form.name << ": " << form.problem;
    EXPECT_LT(form.error, 1e-4);
    EXPECT_EQ(form.speedup.ratio, 2);
  }
  ASSERT_NE(report.chosen(), nullptr);
  EXPECT_TRUE(net->is_training());
  for (const Tensor& parameter : net->parameters()) EXPECT_TRUE(parameter.requires_grad());
  ScriptedMeasurer slow = form_takes(2);
  EXPECT_EQ(try_script(net, small_images(), slow).chosen(), nullptr);
}

TEST(TorchScript, says_why_a_module_cannot_be_traced) {
  const auto module = std::make_shared<torch::nn::Module>();
  ScriptedMeasurer measurer;
  // Its branch depends on the values, which a trace does not see.
  const ModuleCall branches(
      module, [](const Tensor& x) { return x.sum().item<float>() > 0 ? x + 1 : x - 1; });
  const ScriptReport report = try_script(branches, at::full({2, 3}, -0.1), measurer);
  ASSERT_EQ(report.forms.size(), 1U);
  EXPECT_FALSE(report.forms[0].works);
  EXPECT_THAT(report.forms[0].problem, HasSubstr("depends on the values"));
  EXPECT_THAT(report.verdict, HasSubstr("does not work"));
}

// Kernels that LibTorch does not know leave constants in a trace.
TEST(TorchScript, a_trace_of_other_kernels_is_not_taken) {
  torch::manual_seed(1);
  Sequential net(torch::nn::Linear(64, 8));
  ASSERT_TRUE(quantize(net, {.spec = "int8:row"}).is_applied);
  ScriptedMeasurer measurer;
  const ScriptReport report = try_script(net, at::randn({4, 64}), measurer);
  EXPECT_FALSE(report.forms.at(0).works);
  EXPECT_FALSE(report.forms[0].problem.empty());
}

TEST(TorchScript, writes_the_fastest_form_of_a_file) {
  const test::TemporaryFolder folder;
  const auto file = write_script(folder.path(), kCode);
  const std::string before = read_text_file(file);
  const Tensor x = at::linspace(-2, 2, 4 * 3).reshape({4, 3});
  torch::jit::Module module = torch::jit::load(file.string());
  const Tensor want = module.forward({x}).toTensor();
  const auto out = folder.path() / "fast.pt";
  ScriptedMeasurer measurer = form_takes(0.5);
  const ScriptReport report = optimize_script(file, x, measurer, out);
  ASSERT_NE(report.chosen(), nullptr) << to_json(report).dump();
  torch::jit::Module read = torch::jit::load(out.string());
  EXPECT_LT(relative_error(read.forward({x}).toTensor(), want), 1e-5);
  EXPECT_EQ(read_text_file(file), before);

  std::filesystem::remove(out);
  ScriptedMeasurer slow = form_takes(2);
  EXPECT_EQ(optimize_script(file, x, slow, out).chosen(), nullptr);
  EXPECT_FALSE(std::filesystem::exists(out));
}

// Its optimized form has weights in a layout that LibTorch writes and cannot read.
TEST(TorchScript, writes_only_what_can_be_read_again) {
  const test::TemporaryFolder folder;
  torch::jit::Module module("__torch__.Conv");
  module.register_parameter("weight", at::linspace(-1, 1, 8 * 3 * 9).reshape({8, 3, 3, 3}), false);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define(
      "def forward(self, x):\n"
      "    return torch.relu(torch.conv2d(x, self.weight))\n");
  const auto file = folder.path() / "conv.pt", out = folder.path() / "fast.pt";
  module.save(file.string());
  ScriptedMeasurer measurer = form_takes(0.5);
  const ScriptReport report = optimize_script(file, small_images(), measurer, out);
  ASSERT_NE(report.chosen(), nullptr);
  torch::jit::Module read = torch::jit::load(out.string());
  const Tensor want = module.forward({small_images()}).toTensor();
  EXPECT_LT(relative_error(read.forward({small_images()}).toTensor(), want), 1e-5);
}

TEST(TorchScript, refuses_files_that_it_cannot_run) {
  const test::TemporaryFolder folder;
  ScriptedMeasurer measurer;
  const Tensor x = at::ones({4, 3});
  const auto refusal = [&](const std::filesystem::path& file, const Tensor& example,
                           const std::filesystem::path& out = {}) {
    return error_of([&] { optimize_script(file, example, measurer, out); });
  };
  EXPECT_THAT(refusal(folder.path() / "none.pt", x), HasSubstr("none.pt"));
  const auto text = folder.path() / "text.pt";
  write_text_file(text, "not a zip file");
  EXPECT_THAT(refusal(text, x), HasSubstr("TorchScript"));
  const auto file = write_script(folder.path(), kCode);
  EXPECT_THAT(refusal(file, at::ones({4, 7})), HasSubstr("runs on inputs"));
  EXPECT_THAT(refusal(file, x, file), HasSubstr("net.pt"));
}

}  // namespace
}  // namespace hone::nn
