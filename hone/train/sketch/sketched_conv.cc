// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/sketched_conv.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/exact_scope.h"
#include "hone/train/first_derivative.h"
#include "hone/train/sketch/factor_products.h"
#include "hone/train/sketch/fit.h"

namespace hone::nn {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::string_view kConv = "SketchedConv2d";

Tensor mix_channels(const Tensor& hidden, const Tensor& mixing, const std::optional<Tensor>& bias,
                    Index groups) {
  return at::conv2d(hidden, mixing, bias, at::IntArrayRef{1}, at::IntArrayRef{0},
                    at::IntArrayRef{1}, groups);
}

// A sketched convolution, whose backward pass needs the input alone.
struct SketchedConvFunction : torch::autograd::Function<SketchedConvFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& s,
                        const std::optional<Tensor>& bias, const Tensor& mixing,
                        const SketchedConv2dOptions& geometry) {
    const at::ScalarType type = detail::lowered_type(x);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const Tensor image = x.to(type), kernel = s.to(type), mix = mixing.to(type);
    context->save_for_backward({image, kernel, mix});
    auto& data = context->saved_data;
    data["stride"] = std::vector<std::int64_t>(geometry.stride.begin(), geometry.stride.end());
    data["padding"] = std::vector<std::int64_t>(geometry.padding.begin(), geometry.padding.end());
    data["dilation"] =
        std::vector<std::int64_t>(geometry.dilation.begin(), geometry.dilation.end());
    data["groups"] = geometry.groups;
    data["has_bias"] = bias.has_value();
    const Tensor hidden = at::conv2d(image, kernel, {}, geometry.stride, geometry.padding,
                                     geometry.dilation, geometry.groups);
    return mix_channels(hidden, mix, bias ? std::optional(bias->to(type)) : std::nullopt,
                        geometry.groups);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative(kConv);
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const Index groups = data["groups"].toInt();
    const auto stride = data["stride"].toIntVector(), padding = data["padding"].toIntVector();
    const auto dilation = data["dilation"].toIntVector();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const bool wants_x = context->needs_input_grad(0), wants_s = context->needs_input_grad(1);
    Tensor by_x, by_s, by_bias;
    if (wants_x || wants_s) {
      const Tensor by_hidden = at::conv_transpose2d(grads[0], saved[2], {}, 1, 0, 0, groups);
      std::tie(by_x, by_s, std::ignore) = at::convolution_backward(
          by_hidden, saved[0], saved[1], std::nullopt, stride, padding, dilation,
          /*transposed=*/false, {0, 0}, groups, {wants_x, wants_s, false});
    }
    if (data["has_bias"].toBool()) by_bias = grads[0].sum({0, 2, 3});
    return {by_x, by_s, by_bias, Tensor(), Tensor()};
  }
};

const SketchedConv2dOptions& checked_conv(const SketchedConv2dOptions& options) {
  HONE_CHECK(options.groups >= 1 && options.in_channels % options.groups == 0 &&
                 options.out_channels % options.groups == 0,
             kConv, "channels that are multiples of the groups",
             concat(options.in_channels, " and ", options.out_channels, " channels in ",
                    options.groups, " groups"));
  const auto all_at_least = [](const HeightWidth& pair, Index least) {
    return pair[0] >= least && pair[1] >= least;
  };
  HONE_REQUIRE(all_at_least(options.kernel, 1) && all_at_least(options.stride, 1) &&
                   all_at_least(options.dilation, 1) && all_at_least(options.padding, 0),
               kConv, "Kernel, stride and dilation begin at 1, padding at 0.");
  check_size(kConv, options.group_size());
  HONE_REQUIRE(options.groups == 1 || options.groups < options.in_channels, kConv,
               "Factors cannot make a depth-wise convolution cheaper.");
  if (options.mode == FactorMode::Sketched) {
    HONE_CHECK(options.terms >= 1 && options.terms <= options.rank &&
                   options.rank % (2 * options.terms) == 0,
               kConv, concat("a rank that is a multiple of 2 * terms, terms ", options.terms),
               options.rank);
  }
  return options;
}

Tensor conv_signs(const SketchedConv2dOptions& options, at::ScalarType type) {
  const double size = 1 / std::sqrt(static_cast<double>(options.recipe().low_rank));
  return draw_signs({options.seed, 0, options.rank, options.out_channels}, size, type);
}

// The weights of one group after the other, each [outputs, inputs].
SketchedConv2dWeights fit_conv(const SketchedConv2dOptions& options, Fit fit,
                               const Tensor& weight) {
  const Index outputs = options.out_channels / options.groups;
  const bool is_wide = weight.scalar_type() == at::kDouble;
  std::vector<Tensor> firsts, seconds;
  Tensor u;
  if (options.mode == FactorMode::Sketched) {
    u = conv_signs(options, is_wide ? at::kDouble : at::kFloat).to(weight.device());
  }
  for (Index group = 0; group < options.groups; ++group) {
    const Tensor part = weight.detach().narrow(0, group * outputs, outputs).reshape({outputs, -1});
    if (options.mode == FactorMode::LowRank) {
      const auto [a, b] = sketch::fit_svd(part, options.rank);
      firsts.push_back(a);
      seconds.push_back(b.t());
      continue;
    }
    const Tensor mix = u.narrow(1, group * outputs, outputs);
    const double sum = 2.0 * static_cast<double>(options.terms);
    firsts.push_back(fit == Fit::Random ? at::mm(mix, part.to(mix)).to(part.scalar_type())
                                        : sketch::fit_one_sided(part, mix) * sum);
  }
  SketchedConv2dWeights weights;
  weights.first =
      at::cat(firsts).view({options.groups * options.rank, options.in_channels / options.groups,
                            options.kernel[0], options.kernel[1]});
  if (!seconds.empty()) weights.second = at::cat(seconds).unsqueeze(-1).unsqueeze(-1);
  return weights;
}

SketchedConv2dWeights new_conv_weights(const SketchedConv2dOptions& options) {
  const double bound = 1 / std::sqrt(static_cast<double>(options.group_size().inputs));
  const Tensor weight = draw_uniform({options.out_channels, options.in_channels / options.groups,
                                      options.kernel[0], options.kernel[1]},
                                     bound, options.seed, 2);
  const bool is_sketched = options.mode == FactorMode::Sketched;
  SketchedConv2dWeights weights =
      fit_conv(options, is_sketched ? Fit::Projection : Fit::Svd, weight);
  if (options.bias) weights.bias = draw_uniform({options.out_channels}, bound, options.seed, 3);
  return weights;
}

// As at::pad names them.
const char* pad_mode_of(PaddingMode mode) {
  constexpr const char* kNames[] = {"constant", "reflect", "replicate", "circular"};
  return kNames[static_cast<int>(mode)];
}

// Conv2dOptions hold variants.
PaddingMode mode_of(const torch::nn::detail::conv_padding_mode_t& mode) {
  if (std::holds_alternative<torch::enumtype::kReflect>(mode)) return PaddingMode::Reflect;
  if (std::holds_alternative<torch::enumtype::kReplicate>(mode)) return PaddingMode::Replicate;
  if (std::holds_alternative<torch::enumtype::kCircular>(mode)) return PaddingMode::Circular;
  return PaddingMode::Zeros;
}
HeightWidth pair_of(const torch::ExpandingArray<2>& sizes) { return {(*sizes)[0], (*sizes)[1]}; }

HeightWidth padding_of(const torch::nn::detail::ConvNdOptions<2>& conv,
                       const SketchedConv2dOptions& options) {
  if (std::holds_alternative<torch::enumtype::kValid>(conv.padding())) return {0, 0};
  if (!std::holds_alternative<torch::enumtype::kSame>(conv.padding())) {
    return pair_of(std::get<torch::ExpandingArray<2>>(conv.padding()));
  }
  for (int axis = 0; axis < 2; ++axis) {
    if (options.dilation[axis] * (options.kernel[axis] - 1) % 2 != 0) {
      fail_unsupported(kConv, "Padding 'same' of this kernel would not be symmetric.");
    }
  }
  return options.same_padding();
}

}  // namespace

HeightWidth SketchedConv2dOptions::same_padding() const {
  return {dilation[0] * (kernel[0] - 1) / 2, dilation[1] * (kernel[1] - 1) / 2};
}

SketchedConv2dImpl::SketchedConv2dImpl(const SketchedConv2dOptions& options)
    : SketchedConv2dImpl(options, new_conv_weights(checked_conv(options))) {}

SketchedConv2dImpl::SketchedConv2dImpl(const SketchedConv2dOptions& options,
                                       const SketchedConv2dWeights& weights)
    : SketchedConv2dImpl(Quiet{}, options, weights) {
  warn_past_break_even(kConv, options_.group_size());
}

SketchedConv2dImpl::SketchedConv2dImpl(Quiet, const SketchedConv2dOptions& options,
                                       const SketchedConv2dWeights& weights)
    : options_(checked_conv(options)) {
  const auto check_shape = [](const char* name, const Tensor& tensor, at::IntArrayRef sizes) {
    HONE_CHECK(tensor.defined() && tensor.sizes() == sizes && tensor.is_floating_point(), kConv,
               concat(name, " of shape ", c10::str(sizes), " in floating point"),
               tensor.defined() ? c10::str(tensor.sizes()) : "no tensor");
  };
  const auto own = [](const Tensor& tensor) {
    return tensor.detach().clone(at::MemoryFormat::Contiguous);
  };
  check_shape("the first factor", weights.first,
              {options_.groups * options_.rank, options_.in_channels / options_.groups,
               options_.kernel[0], options_.kernel[1]});
  first_ = register_parameter(is_sketched() ? "s" : "a", own(weights.first));
  if (!is_sketched()) {
    check_shape("the second factor", weights.second, {options_.out_channels, options_.rank, 1, 1});
    second_ = register_parameter("b", own(weights.second));
  }
  HONE_REQUIRE(weights.bias.defined() == options_.bias, kConv,
               "Options and weights disagree on whether there is a bias.");
  if (options_.bias) {
    check_shape("bias", weights.bias, {options_.out_channels});
    bias_ = register_parameter("bias", own(weights.bias));
  }
  if (is_sketched()) {
    sketch_ = register_buffer("sketch", options_.recipe().to_bytes());
    if (weights.signs.defined()) signs_ = register_buffer("signs", own(weights.signs));
  }
  mixing();
}

const Tensor& SketchedConv2dImpl::mixing() {
  if (!is_sketched()) return second_;
  if (mixing_.defined() && mixing_.scalar_type() == first_.scalar_type() &&
      mixing_.device() == first_.device() && seen_signs_.are({sign_source()})) {
    return mixing_;
  }
  const c10::InferenceMode no_inference(false);
  const at::NoGradGuard no_grad;
  const SketchRecipe recipe = this->recipe();
  HONE_CHECK(2 * recipe.terms * recipe.low_rank == options_.rank, kConv,
             concat("a sketch of ", options_.rank, " rows"),
             concat("2 * ", recipe.terms, " * ", recipe.low_rank));
  options_.seed = recipe.seed;
  options_.terms = recipe.terms;
  restore_bytes(sketch_);
  restore_bytes(signs_);
  seen_signs_.set({sign_source()});
  const double sum = 2.0 * static_cast<double>(options_.terms);
  mixing_ = (fixed_signs().t() / sum)
                .contiguous()
                .view({options_.out_channels, options_.rank, 1, 1})
                .to(first_.options());
  return mixing_;
}

Tensor SketchedConv2dImpl::fixed_signs() const {
  HONE_REQUIRE(is_sketched(), kConv, "Only sketched layers have fixed signs.");
  const at::ScalarType type = first_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (!signs_.defined()) return conv_signs(options_, type);
  const double size = 1 / std::sqrt(static_cast<double>(options_.recipe().low_rank));
  return unpack_signs(signs_, options_.rank * options_.out_channels)
      .to(type)
      .mul_(size)
      .view({options_.rank, options_.out_channels});
}

Tensor SketchedConv2dImpl::forward(const Tensor& x) {
  HONE_CHECK((x.dim() == 3 || x.dim() == 4) && x.size(-3) == options_.in_channels, kConv,
             concat("x [batch, ", options_.in_channels, ", height, width]"), c10::str(x.sizes()));
  if (x.dim() == 3) return forward(x.unsqueeze(0)).squeeze(0);
  HONE_CHECK(detail::lowered_type(x) == detail::lowered_type(first_), kConv,
             concat("x of type ", at::toString(first_.scalar_type())),
             at::toString(x.scalar_type()));
  SketchedConv2dOptions geometry = options_;
  Tensor image = x;
  if (options_.padding_mode != PaddingMode::Zeros) {
    const auto& [height, width] = options_.padding;
    image = at::pad(x, {width, width, height, height}, pad_mode_of(options_.padding_mode));
    geometry.padding = {0, 0};
  }
  const Tensor& mix = mixing();
  if (is_sketched()) {
    const auto bias = bias_.defined() ? std::optional(bias_) : std::nullopt;
    return SketchedConvFunction::apply(image, first_, bias, mix, geometry);
  }
  const Tensor hidden = at::conv2d(image, first_, {}, geometry.stride, geometry.padding,
                                   geometry.dilation, geometry.groups);
  return mix_channels(hidden, mix, bias_, geometry.groups);
}

Tensor SketchedConv2dImpl::forward_chunked(const Tensor& x, Index max_bytes) {
  HONE_CHECK(x.dim() == 4, kConv, "x [batch, channels, height, width]", c10::str(x.sizes()));
  HONE_CHECK(max_bytes >= 1, kConv, "max_bytes >= 1", max_bytes);
  const at::NoGradGuard no_grad;
  Index pixels = 1;
  for (int axis = 0; axis < 2; ++axis) {
    const Index span = options_.dilation[axis] * (options_.kernel[axis] - 1) + 1;
    pixels *= (x.size(2 + axis) + 2 * options_.padding[axis] - span) / options_.stride[axis] + 1;
  }
  const Index channels = options_.groups * options_.rank + options_.out_channels;
  // LibTorch's convolutions on the CPU hold their outputs twice: in oneDNN's layout and in its own.
  const Index image = options_.in_channels * x.size(2) * x.size(3) + 2 * channels * pixels;
  const Index images =
      std::max<Index>(1, max_bytes / (image * static_cast<Index>(x.element_size())));
  if (images >= x.size(0)) return forward(x);
  Tensor out;
  for (Index begin = 0; begin < x.size(0); begin += images) {
    const Index count = std::min(images, x.size(0) - begin);
    const Tensor part = forward(x.narrow(0, begin, count));
    if (!out.defined()) {
      out = at::empty({x.size(0), part.size(1), part.size(2), part.size(3)}, part.options());
    }
    out.narrow(0, begin, count).copy_(part);
  }
  return out;
}

Tensor SketchedConv2dImpl::effective_weight() {
  const ExactScope exact;
  const at::NoGradGuard no_grad;
  const Index groups = options_.groups, outputs = options_.out_channels / groups;
  const Tensor mix = mixing().view({groups, outputs, options_.rank});
  const Tensor kernels = first_.reshape({groups, options_.rank, -1});  // may be channels-last
  return at::bmm(mix, kernels)
      .view({options_.out_channels, first_.size(1), first_.size(2), first_.size(3)});
}

LayerFacts SketchedConv2dImpl::facts() const {
  const FactorSize size = options_.group_size();
  const Index inner = first_.numel(), outer = options_.out_channels * options_.rank;
  LayerFacts facts;
  facts.trainable = inner + (is_sketched() ? 0 : outer) + (options_.bias ? bias_.numel() : 0);
  facts.stored_bytes =
      bytes_of(first_) + bytes_of(second_) + bytes_of(bias_) + bytes_of(sketch_) + bytes_of(signs_);
  facts.resident_bytes = facts.stored_bytes + bytes_of(mixing_);
  facts.forward_flops = 2 * (inner + outer);
  facts.backward_flops = 4 * inner + (is_sketched() ? 2 : 4) * outer;
  facts.break_even = size.break_even();
  return facts;
}

void SketchedConv2dImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  mixing();
}

void SketchedConv2dImpl::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  mixing();
}

void SketchedConv2dImpl::to(torch::Device device, bool non_blocking) {
  Module::to(device, non_blocking);
  mixing();
}

void SketchedConv2dImpl::reset() {
  const SketchedConv2dWeights weights = new_conv_weights(options_);
  const at::NoGradGuard no_grad;
  first_.copy_(weights.first);
  if (second_.defined()) second_.copy_(weights.second);
  if (bias_.defined()) bias_.copy_(weights.bias);
}

std::shared_ptr<torch::nn::Module> SketchedConv2dImpl::clone(
    const std::optional<torch::Device>& device) const {
  const at::NoGradGuard no_grad;
  const std::shared_ptr<SketchedConv2dImpl> copy(
      new SketchedConv2dImpl(Quiet{}, options_, {first_, second_, bias_, signs_}));
  if (is_sketched()) copy->sketch_.copy_(sketch_);
  for (const auto& item : named_parameters(false)) {
    copy->named_parameters(false)[item.key()].set_requires_grad(item->requires_grad());
  }
  copy->train(is_training());
  if (device) copy->to(*device);
  return copy;
}

SketchedConv2dOptions geometry_of(const torch::nn::Conv2dImpl& conv) {
  HONE_REQUIRE(!conv.options.transposed(), kConv, "Transposed convolutions have no factors.");
  SketchedConv2dOptions options;
  options.in_channels = conv.options.in_channels();
  options.out_channels = conv.options.out_channels();
  options.kernel = pair_of(conv.options.kernel_size());
  options.stride = pair_of(conv.options.stride());
  options.dilation = pair_of(conv.options.dilation());
  options.padding = padding_of(conv.options, options);
  options.groups = conv.options.groups();
  options.padding_mode = mode_of(conv.options.padding_mode());
  options.bias = conv.bias.defined();
  return options;
}

SketchedConv2d from_conv(const torch::nn::Conv2dImpl& conv, const ConvFitOptions& fit) {
  const bool is_sketched = fit.mode == FactorMode::Sketched;
  const bool fits =
      is_sketched ? fit.fit == Fit::Random || fit.fit == Fit::Projection : fit.fit == Fit::Svd;
  HONE_REQUIRE(fits, "from_conv",
               is_sketched ? "A sketched convolution has Fit::Random and Fit::Projection."
                           : "A low-rank convolution has Fit::Svd only.");
  const at::NoGradGuard no_grad;
  SketchedConv2dOptions options = geometry_of(conv);
  options.rank = fit.rank;
  options.terms = fit.terms;
  options.mode = fit.mode;
  options.seed = fit.seed;
  check_fit_size("from_conv", options.group_size(), fit.mode, fit.terms);
  sketch::check_finite("from_conv", "bias", conv.bias);
  SketchedConv2dWeights weights = fit_conv(checked_conv(options), fit.fit, conv.weight);
  weights.bias = conv.bias;
  SketchedConv2d out(options, weights);
  for (auto& item : out->named_parameters()) {
    const Tensor& from = item.key() == "bias" ? conv.bias : conv.weight;
    item->set_requires_grad(from.requires_grad());
  }
  out->train(conv.is_training());
  return out;
}

}  // namespace hone::nn
