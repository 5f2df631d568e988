// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/factored_linear.h"

#include <ATen/ATen.h>
#include <torch/serialize.h>

#include <cmath>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/exact_scope.h"
#include "hone/train/sketch/fit.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr std::string_view kFactored = "FactoredLinear";
constexpr Index kRankMultiple = 16;
// Streams of a seed: of the fixed signs, and of a new layer's weight and bias.
constexpr std::uint32_t kU1Stream = 0, kU2Stream = 1;
constexpr std::uint64_t kWeightStream = 2, kBiasStream = 3;

const FactoredLinearOptions& checked(const FactoredLinearOptions& options) {
  check_size(kFactored, options.size());
  check_epilogue(options.epilogue);
  if (options.mode == FactorMode::Sketched) {
    HONE_CHECK(options.terms >= 1 && options.terms <= options.rank &&
                   options.rank % (2 * options.terms) == 0,
               kFactored, concat("a rank that is a multiple of 2 * terms, terms ", options.terms),
               options.rank);
  }
  return options;
}

double sign_size(const FactoredLinearOptions& options) {
  return 1 / std::sqrt(static_cast<double>(options.recipe().low_rank));
}

FactoredWeights new_weights(const FactoredLinearOptions& options) {
  const double bound = 1 / std::sqrt(static_cast<double>(options.in_features));
  const Tensor weight =
      draw_uniform({options.out_features, options.in_features}, bound, options.seed, kWeightStream);
  FactoredWeights weights;
  if (options.bias) {
    weights.bias = draw_uniform({options.out_features}, bound, options.seed, kBiasStream);
  }
  if (options.mode == FactorMode::Sketched) {
    const auto [u1, u2] = fixed_signs_of(options, at::kFloat);
    std::tie(weights.first, weights.second) =
        sketch::fit_projection(weight, {u1, u2, options.terms});
  } else {
    std::tie(weights.first, weights.second) = sketch::fit_svd(weight, options.rank);
  }
  return weights;
}

bool has_memory_of(const Tensor& part, const Tensor& whole) {
  return part.data_ptr() == whole.data_ptr() && part.is_contiguous() &&
         part.scalar_type() == whole.scalar_type() && part.device() == whole.device();
}

}  // namespace

std::pair<Tensor, Tensor> fixed_signs_of(const FactoredLinearOptions& options,
                                         at::ScalarType type) {
  const Index width = checked(options).width();
  const double size = sign_size(options);
  return {draw_signs({options.seed, kU1Stream, width, options.out_features}, size, type),
          draw_signs({options.seed, kU2Stream, width, options.in_features}, size, type)};
}

FactoredLinearImpl::FactoredLinearImpl(const FactoredLinearOptions& options)
    : FactoredLinearImpl(options, new_weights(checked(options))) {}

FactoredLinearImpl::FactoredLinearImpl(const FactoredLinearOptions& options,
                                       const FactoredWeights& weights)
    : FactoredLinearImpl(Quiet{}, options, weights) {
  warn_past_break_even(kFactored, options_.size());
}

FactoredLinearImpl::FactoredLinearImpl(Quiet, const FactoredLinearOptions& options,
                                       const FactoredWeights& weights)
    : options_(checked(options)) {
  register_weights(weights);
}

void FactoredLinearImpl::register_weights(const FactoredWeights& weights) {
  const auto check_shape = [](const char* name, const Tensor& tensor, at::IntArrayRef sizes) {
    HONE_CHECK(tensor.defined() && tensor.sizes() == sizes, kFactored,
               concat(name, " of shape ", c10::str(sizes)),
               tensor.defined() ? c10::str(tensor.sizes()) : "no tensor");
    HONE_CHECK(tensor.is_floating_point(), kFactored, concat(name, " of floating point"),
               at::toString(tensor.scalar_type()));
  };
  const c10::InferenceMode no_inference(false);
  const Index width = options_.width();
  check_shape("the first factor", weights.first, {width, options_.in_features});
  check_shape("the second factor", weights.second, {width, options_.out_features});
  HONE_REQUIRE(weights.bias.defined() == options_.bias, kFactored,
               "Options and weights disagree on whether there is a bias.");
  const auto own = [](const Tensor& tensor) {
    return tensor.detach().clone(at::MemoryFormat::Contiguous);
  };
  first_ = register_parameter(is_sketched() ? "s1" : "a", own(weights.first));
  second_ = register_parameter(is_sketched() ? "s2" : "b", own(weights.second));
  if (options_.bias) {
    check_shape("bias", weights.bias, {options_.out_features});
    bias_ = register_parameter("bias", own(weights.bias));
  }
  if (is_sketched()) {
    sketch_ = register_buffer("sketch", options_.recipe().to_bytes());
    if (weights.signs.defined()) signs_ = register_buffer("signs", own(weights.signs));
  }
  assemble();
}

bool FactoredLinearImpl::is_assembled() const {
  if (!has_memory_of(first_, rows_.a) ||
      !has_memory_of(second_, rows_.b.narrow(0, rows_.second_at, 1))) {
    return false;
  }
  return !is_sketched() || seen_signs_.are({sign_source()});
}

// The recipe that a loader may have replaced.
void FactoredLinearImpl::read_recipe() {
  const SketchRecipe recipe = this->recipe();
  HONE_CHECK(recipe.terms * recipe.low_rank == options_.width(), kFactored,
             concat("a sketch of ", options_.width(), " rows"),
             concat(recipe.terms, " * ", recipe.low_rank));
  options_.seed = recipe.seed;
  options_.terms = recipe.terms;
  restore_bytes(sketch_);
  restore_bytes(signs_);
  seen_signs_.set({sign_source()});
}

void FactoredLinearImpl::assemble() {
  const c10::InferenceMode no_inference(false);
  const at::NoGradGuard no_grad;
  const Index width = options_.width();
  const Index padded = (options_.rank + kRankMultiple - 1) / kRankMultiple * kRankMultiple;
  const Index second_at = is_sketched() ? width : 0;
  const Tensor a = at::zeros({padded, options_.in_features}, first_.options());
  const Tensor b = at::zeros({padded, options_.out_features}, second_.options());
  a.narrow(0, 0, width).copy_(first_);
  b.narrow(0, second_at, width).copy_(second_);
  if (is_sketched()) {
    read_recipe();
    const auto [u1, u2] = fixed_signs();
    const double average = 1 / (2.0 * static_cast<double>(options_.terms));
    a.narrow(0, width, width).copy_(u2.to(a.device()) * average);
    b.narrow(0, 0, width).copy_(u1.to(b.device()) * average);
  }
  first_.set_data(a.narrow(0, 0, width));
  second_.set_data(b.narrow(0, second_at, width));
  rows_ = {a, b, width, second_at};
}

std::pair<Tensor, Tensor> FactoredLinearImpl::fixed_signs() const {
  HONE_REQUIRE(is_sketched(), kFactored, "Only sketched layers have fixed signs.");
  const at::ScalarType type = first_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (!signs_.defined()) return fixed_signs_of(options_, type);
  const Index width = options_.width(), outputs = options_.out_features;
  const Tensor all = unpack_signs(signs_, width * (outputs + options_.in_features))
                         .to(type)
                         .mul_(sign_size(options_));
  return {all.narrow(0, 0, width * outputs).view({width, outputs}),
          all.narrow(0, width * outputs, width * options_.in_features).view({width, -1})};
}

Tensor FactoredLinearImpl::forward(const Tensor& x) {
  HONE_CHECK(x.dim() >= 1 && x.size(-1) == options_.in_features, kFactored,
             concat("x [..., ", options_.in_features, "]"), c10::str(x.sizes()));
  if (!is_assembled()) assemble();
  const Tensor y = detail::factored_product(x.reshape({-1, options_.in_features}).contiguous(),
                                            first_, second_, bias_,
                                            {.rows = rows_,
                                             .epilogue = options_.epilogue,
                                             .is_training = is_training(),
                                             .recompute = options_.recompute,
                                             .matmul = options_.matmul});
  auto sizes = x.sizes().vec();
  sizes.back() = options_.out_features;
  return y.view(sizes);
}

std::pair<Tensor, Tensor> FactoredLinearImpl::factors() {
  if (!is_assembled()) assemble();
  return {rows_.a.narrow(0, 0, options_.rank), rows_.b.narrow(0, 0, options_.rank)};
}

Tensor FactoredLinearImpl::effective_weight() {
  const ExactScope exact;
  const auto [a, b] = factors();
  return at::mm(b.t(), a);
}

LayerFacts FactoredLinearImpl::facts() const {
  const Index numbers = options_.size().numbers();
  const Index bias = options_.bias ? options_.out_features : 0;
  LayerFacts facts;
  facts.trainable = options_.width() * (options_.in_features + options_.out_features) + bias;
  facts.stored_bytes =
      bytes_of(first_) + bytes_of(second_) + bytes_of(bias_) + bytes_of(sketch_) + bytes_of(signs_);
  facts.resident_bytes = bytes_of(rows_.a) + bytes_of(rows_.b) + bytes_of(bias_) +
                         bytes_of(sketch_) + bytes_of(signs_);
  facts.forward_flops = 2 * numbers;
  facts.backward_flops = is_sketched() ? 3 * numbers : 4 * numbers;
  facts.break_even = options_.size().break_even();
  return facts;
}

// Cloneable::clone registers anew after it has emptied the lists.
void FactoredLinearImpl::reset() {
  const FactoredWeights weights = new_weights(options_);
  const at::NoGradGuard no_grad;
  first_.copy_(weights.first);
  second_.copy_(weights.second);
  if (options_.bias) bias_.copy_(weights.bias);
}

std::shared_ptr<torch::nn::Module> FactoredLinearImpl::clone(
    const std::optional<torch::Device>& device) const {
  const std::shared_ptr<FactoredLinearImpl> copy(
      new FactoredLinearImpl(Quiet{}, options_, {first_, second_, bias_, signs_}));
  if (is_sketched()) copy->sketch_.copy_(sketch_);  // may differ from options_ after a loader
  copy->first_.set_requires_grad(first_.requires_grad());
  copy->second_.set_requires_grad(second_.requires_grad());
  if (bias_.defined()) copy->bias_.set_requires_grad(bias_.requires_grad());
  copy->train(is_training());
  if (device) copy->to(*device);
  return copy;
}

void FactoredLinearImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  assemble();
}

void FactoredLinearImpl::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  assemble();
}

void FactoredLinearImpl::to(torch::Device device, bool non_blocking) {
  Module::to(device, non_blocking);
  assemble();
}

void FactoredLinearImpl::save(torch::serialize::OutputArchive& archive) const {
  for (const auto& item : named_parameters(false)) archive.write(item.key(), item->clone());
  for (const auto& item : named_buffers(false)) {
    archive.write(item.key(), item.value(), /*is_buffer=*/true);
  }
}

}  // namespace hone::nn
