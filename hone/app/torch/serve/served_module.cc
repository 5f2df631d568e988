// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/serve/served_module.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <utility>

#include "hone/app/vision_folder.h"
#include "hone/core/check.h"
#include "hone/train/fuse/fuse.h"
#include "hone/train/serve/script_file.h"
#include "hone/train/surgery/evaluation_scope.h"
#include "hone/train/task/vision/score_images.h"
#include "hone/train/task/vision/vision_model.h"

namespace hone::app {
namespace {

using torch::Tensor;

// As a batch of one image goes through `hone classify`.
Tensor image_tensor(const task::VisionModel& model, std::span<const std::byte> file,
                    std::string_view where) {
  const data::ImageShape shape = model.image_shape();
  const auto read = [&](Index, std::span<std::uint8_t> planes) {
    data::decode_square(file, where, shape, planes);
  };
  const data::ImagePart part(shape, std::vector<std::uint16_t>(1), read);
  const task::ImageBatches batches(part, shape, model.stats, /*seed=*/0, model.cut());
  return task::to_tensors(batches.make(0, 1), batches.shape()).front().squeeze(0);
}

ServedModule open_classifier(const std::filesystem::path& folder) {
  const auto model = std::make_shared<task::VisionModel>(task::read_vision_model(folder));
  nn::fuse_unmeasured(*model->net);
  const nn::VisionSpec& spec = model->net->spec();
  return {.module = model->net,
          .kind = "classifier",
          .classes = model->classes,
          .shape = {spec.channels, spec.height, spec.image_width},
          .read_image = [model](std::span<const std::byte> file, std::string_view where) {
            return image_tensor(*model, file, where);
          }};
}

void check_forward(const torch::jit::Module& script, const std::string& where) {
  constexpr std::string_view kWanted = "a TorchScript model whose forward() takes one tensor";
  const auto method = script.find_method("forward");
  if (!method) fail_unsupported(where, kWanted, "one without forward()");
  std::size_t needed = 0;
  for (const c10::Argument& argument : method->function().getSchema().arguments()) {
    if (!argument.default_value()) ++needed;
  }
  if (needed != 2) {  // the first one is the module
    fail_unsupported(where, kWanted, concat(needed - 1, " arguments"));
  }
  const auto is_tensor = [](const c10::Argument& argument) {
    const auto kind = argument.type()->kind();
    return kind == c10::TypeKind::TensorType || kind == c10::TypeKind::AnyType;
  };
  const c10::Argument& input = method->function().getSchema().arguments().at(1);
  if (!is_tensor(input)) fail_unsupported(where, kWanted, input.type()->str());
  for (const c10::Argument& output : method->function().getSchema().returns()) {
    if (is_tensor(output)) continue;
    fail_unsupported(where, "a TorchScript model whose forward() returns one tensor",
                     output.type()->str());
  }
}

ServedModule open_script(const std::filesystem::path& file) {
  torch::jit::Module script = nn::load_script(file);
  check_forward(script, file.string());
  const auto forward = [script](const Tensor& x) mutable {
    const torch::jit::IValue out = script.forward({x});
    if (!out.isTensor()) {
      fail_unsupported("forward", "a tensor as the output", out.type()->str());
    }
    return out.toTensor();
  };
  return {.module = nn::ModuleCall(std::make_shared<torch::nn::Module>(), forward),
          .kind = "torchscript"};
}

}  // namespace

void warm_up(const ServedModule& module) {
  if (module.shape.empty()) return;
  constexpr int kRuns = 3;
  std::vector<std::int64_t> sizes = module.shape;
  sizes.insert(sizes.begin(), 1);
  const at::NoGradGuard no_grad;
  const nn::EvaluationScope evaluation(module.module.module());
  Tensor out;
  for (int i = 0; i < kRuns; ++i) out = module.module(at::zeros(sizes));
  HONE_REQUIRE(at::isfinite(out).all().item<bool>(), "serve",
               "The model computes NaN or infinite logits.");
}

ServedModule open_served_module(const std::filesystem::path& model) {
  return is_vision_model(model) ? open_classifier(model) : open_script(model);
}

}  // namespace hone::app
