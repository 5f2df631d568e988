// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/recompute.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <utility>

#include "hone/core/check.h"
#include "hone/train/random_state.h"

namespace hone::nn {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;

// The autocast settings of the devices that segments run on.
class AutocastState {
 public:
  AutocastState() : caches_(at::autocast::is_autocast_cache_enabled()) {
    devices_.push_back({at::kCPU});
    if (at::hasCUDA()) devices_.push_back({at::kCUDA});
    for (Device& device : devices_) {
      device.enabled = at::autocast::is_autocast_enabled(device.type);
      device.dtype = at::autocast::get_autocast_dtype(device.type);
    }
  }
  void restore() const {
    for (const Device& device : devices_) {
      at::autocast::set_autocast_enabled(device.type, device.enabled);
      at::autocast::set_autocast_dtype(device.type, device.dtype);
    }
    at::autocast::set_autocast_cache_enabled(caches_);
  }

 private:
  struct Device {
    at::DeviceType type;
    bool enabled = false;
    at::ScalarType dtype = at::kFloat;
  };
  std::vector<Device> devices_;
  bool caches_;
};

// Enters the state of the forward pass and restores the previous one at the end. Clears cached
// casts of weights on both sides, because those of the forward pass have no gradient.
class Replay {
 public:
  Replay(const RandomState& random, const AutocastState& autocast, const Tensors& inputs)
      : random_(inputs) {
    random.restore();
    autocast.restore();
    at::autocast::clear_cache();
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay() {
    at::autocast::clear_cache();
    autocast_.restore();
    random_.restore();
  }

 private:
  RandomState random_;
  AutocastState autocast_;
};

// The data that the backward pass needs besides the saved inputs.
struct Recipe final : torch::CustomClassHolder {
  Recipe(Segment segment_in, std::vector<bool> given_in)
      : segment(std::move(segment_in)), given(std::move(given_in)) {}

  // Inserts the undefined inputs into `present`.
  Tensors with_gaps(const Tensors& present) const {
    Tensors all;
    auto next = present.begin();
    for (const bool is_given : given) all.push_back(is_given ? *next++ : Tensor());
    return all;
  }

  Segment segment;
  std::vector<bool> given;  // which inputs are defined
  AutocastState autocast;
  std::optional<RandomState> random;
  std::vector<std::vector<Index>> shapes;  // of the outputs
};

std::vector<std::vector<Index>> shapes_of(const Tensors& tensors) {
  std::vector<std::vector<Index>> out;
  for (const Tensor& tensor : tensors) {
    HONE_REQUIRE(tensor.defined(), "recompute", "The segment returned an undefined tensor.");
    out.push_back(tensor.sizes().vec());
  }
  return out;
}

struct RecomputeFunction : torch::autograd::Function<RecomputeFunction> {
  // `anchor` requires a gradient, so that there is a backward pass even if only captured weights
  // require one.
  static Tensors forward(AutogradContext* context, const Tensor& /*anchor*/, at::TensorList present,
                         const c10::intrusive_ptr<Recipe>& recipe) {
    const Tensors inputs = present.vec();
    recipe->random.emplace(inputs);
    at::autocast::set_autocast_cache_enabled(false);
    Tensors outputs;
    try {
      outputs = recipe->segment(recipe->with_gaps(inputs));
    } catch (...) {
      recipe->autocast.restore();
      throw;
    }
    recipe->autocast.restore();
    recipe->shapes = shapes_of(outputs);
    Tensors constant;
    for (const Tensor& output : outputs) {
      if (!output.is_floating_point() && !output.is_complex()) constant.push_back(output);
    }
    context->mark_non_differentiable(constant);
    context->set_materialize_grads(false);
    context->save_for_backward(inputs);
    context->saved_data["recipe"] = at::IValue::make_capsule(recipe);
    return outputs;
  }

  static Tensors backward(AutogradContext* context, const Tensors& grads) {
    if (at::GradMode::is_enabled() ||
        !torch::autograd::Engine::get_default_engine().is_checkpoint_valid()) {
      fail_unsupported("recompute", at::GradMode::is_enabled()
                                        ? "backward() with create_graph is not supported."
                                        : "backward() with a list of inputs is not supported.");
    }
    const auto capsule = context->saved_data["recipe"].toCapsule();
    const auto& recipe = static_cast<const Recipe&>(*capsule);
    Tensors leaves;
    for (const Tensor& input : context->get_saved_variables()) {
      leaves.push_back(input.detach().requires_grad_(input.requires_grad()));
    }
    back_through(recipe, leaves, grads);
    Tensors by_input = {Tensor()};  // the anchor
    for (const Tensor& leaf : leaves) by_input.push_back(leaf.grad());
    by_input.emplace_back();  // the recipe
    return by_input;
  }

  // Writes the gradients to .grad of `leaves` and of captured weights.
  static void back_through(const Recipe& recipe, const Tensors& leaves, const Tensors& grads) {
    Tensors outputs;
    {
      const Replay replay(*recipe.random, recipe.autocast, leaves);
      const at::AutoGradMode with_gradients(true);
      outputs = recipe.segment(recipe.with_gaps(leaves));
    }
    if (shapes_of(outputs) != recipe.shapes) {
      fail(ErrorCategory::Internal, "recompute",
           "The second computation returned outputs of other shapes, so the segment is not a pure "
           "function.");
    }
    Tensors roots, root_grads;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!grads[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      root_grads.push_back(grads[i]);
    }
    outputs.clear();
    if (!roots.empty()) torch::autograd::backward(roots, root_grads);
  }
};

}  // namespace

Tensors recompute(Segment segment, const Tensors& inputs) {
  HONE_REQUIRE(segment != nullptr, "recompute", "There is no segment.");
  if (!at::GradMode::is_enabled()) return segment(inputs);
  Tensors present;
  std::vector<bool> given;
  for (const Tensor& input : inputs) {
    given.push_back(input.defined());
    if (input.defined()) present.push_back(input);
  }
  const Tensor anchor = at::empty({0}).requires_grad_(true);
  return RecomputeFunction::apply(
      anchor, at::TensorList(present),
      c10::make_intrusive<Recipe>(std::move(segment), std::move(given)));
}

}  // namespace hone::nn
