// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/convert.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>

#include "hone/core/check.h"
#include "hone/train/exact_scope.h"
#include "hone/train/nn/linear.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr std::string_view kConvert = "from_linear";

void check_fit(const FitOptions& options) {
  const bool is_sketched = options.mode == FactorMode::Sketched;
  HONE_REQUIRE(options.fit != Fit::Svd || !is_sketched, kConvert,
               "Fit::Svd, the default, chooses both factors; a sketched layer keeps half of each "
               "and takes Fit::Projection, Activation or Random.");
  HONE_REQUIRE((options.fit != Fit::Random && options.fit != Fit::Projection) || is_sketched,
               kConvert, "A low-rank layer has no fixed signs to fit to.");
  HONE_REQUIRE(options.fit != Fit::Activation || options.inputs != nullptr, kConvert,
               "Fit::Activation needs moments of the inputs.");
  HONE_REQUIRE(options.fit == Fit::Activation || options.inputs == nullptr, kConvert,
               "Only Fit::Activation takes moments of the inputs.");
  HONE_REQUIRE(options.rank != 0 || !is_sketched, kConvert, "A sketched layer needs a rank.");
  HONE_REQUIRE(options.rank != 0 || options.max_error != 0, kConvert,
               "A low-rank layer needs a rank or a max_error above 0.");
  HONE_CHECK(options.max_error >= 0 && options.max_error < 1, kConvert, "a max_error in (0, 1)",
             options.max_error);
  HONE_REQUIRE(options.rank == 0 || options.max_error == 0, kConvert,
               "A layer has either a rank or a max_error.");
  HONE_REQUIRE(options.factors == nullptr || !is_sketched, kConvert,
               "A sketched layer takes no factors.");
}

sketch::FactorPair first_rows(const sketch::FactorPair& factors, Index rank) {
  HONE_CHECK(factors.first.size(0) >= rank, kConvert, concat("factors of a rank from ", rank),
             factors.first.size(0));
  return {factors.first.narrow(0, 0, rank), factors.second.narrow(0, 0, rank)};
}

void copy_flags(const torch::nn::LinearImpl& from, FactoredLinearImpl& to) {
  for (auto& parameter : to.parameters()) parameter.set_requires_grad(from.weight.requires_grad());
  if (from.bias.defined()) Tensor(to.bias()).set_requires_grad(from.bias.requires_grad());
  to.train(from.is_training());
}

}  // namespace

void check_fit_size(std::string_view call, const FactorSize& size, FactorMode mode, Index terms) {
  const bool is_sketched = mode == FactorMode::Sketched;
  HONE_REQUIRE(is_sketched || terms == 1, call, "Only a sketched layer has terms.");
  constexpr Index kMostTerms = 64;
  const Index most =
      is_sketched ? (size.inputs + size.outputs) * 2 * std::clamp<Index>(terms, 1, kMostTerms)
                  : std::min(size.inputs, size.outputs);
  HONE_CHECK(size.rank >= 1 && size.rank <= most, call, concat("a rank of 1 to ", most), size.rank);
}

Tensor refitted_bias(const Tensor& bias, const Tensor& weight, const Tensor& effective,
                     const sketch::InputMoments& inputs) {
  const ExactScope exact;
  const at::NoGradGuard no_grad;
  HONE_CHECK(inputs.mean.defined() && inputs.mean.size(0) == weight.size(1), "refitted_bias",
             concat("moments of ", weight.size(1), " inputs"),
             inputs.mean.defined() ? concat(inputs.mean.size(0)) : "none");
  const Tensor error = weight.detach().to(at::kDouble) - effective.to(at::kDouble);
  return (bias.detach() + at::mv(error, inputs.mean.to(error))).to(bias.scalar_type());
}

FactoredLinear from_linear(const torch::nn::LinearImpl& linear, const FitOptions& options) {
  check_fit(options);
  const at::NoGradGuard no_grad;
  const Tensor& weight = linear.weight;
  if (options.rank != 0) {
    check_fit_size(kConvert, {weight.size(1), weight.size(0), options.rank}, options.mode,
                   options.terms);
  }
  sketch::check_finite(kConvert, "bias", linear.bias);
  FactoredLinearOptions layer{.in_features = weight.size(1),
                              .out_features = weight.size(0),
                              .rank = options.rank,
                              .terms = options.terms,
                              .mode = options.mode,
                              .bias = linear.bias.defined(),
                              .seed = options.seed,
                              .recompute = false,
                              .epilogue = options.epilogue,
                              .matmul = MatmulBackend::Auto};
  if (layer.rank == 0) {
    layer.rank = sketch::rank_for_error(weight, options.max_error, options.inputs);
  }
  if (const auto* own = dynamic_cast<const LinearImpl*>(&linear)) layer.matmul = own->backend();
  FactoredWeights weights;
  weights.bias = linear.bias;
  if (options.mode == FactorMode::LowRank) {
    std::tie(weights.first, weights.second) =
        options.factors != nullptr ? first_rows(*options.factors, layer.rank)
                                   : sketch::fit_svd(weight, layer.rank, options.inputs);
  } else {
    const auto [u1, u2] =
        fixed_signs_of(layer, weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    const sketch::FixedSigns signs{u1, u2, layer.terms};
    std::tie(weights.first, weights.second) =
        options.fit == Fit::Random ? sketch::fit_random(weight, signs)
                                   : sketch::fit_projection(weight, signs, options.inputs);
  }
  FactoredLinear out(layer, weights);
  if (options.inputs && linear.bias.defined()) {
    const Tensor bias =
        refitted_bias(linear.bias, weight, out->effective_weight(), *options.inputs);
    Tensor(out->bias()).copy_(bias);
  }
  copy_flags(linear, *out);
  return out;
}

FactoredLinear recompress(FactoredLinearImpl& layer, double max_error) {
  FactoredLinearOptions options = layer.options();
  const auto [a, b] = sketch::recompress(layer.factors(), max_error);
  options.mode = FactorMode::LowRank;
  options.rank = a.size(0);
  FactoredLinear out(options, FactoredWeights{a, b, layer.bias(), {}});
  out->train(layer.is_training());
  return out;
}

torch::nn::Linear to_dense(FactoredLinearImpl& layer) {
  const at::NoGradGuard no_grad;
  const auto& options = layer.options();
  torch::nn::Linear out(
      torch::nn::LinearOptions(1, 1).bias(options.bias));  // replaced: no initialization to pay for
  out->options.in_features(options.in_features).out_features(options.out_features);
  out->weight.set_data(layer.effective_weight());
  if (options.bias) out->bias.set_data(layer.bias().detach().clone());
  out->train(layer.is_training());
  return out;
}

}  // namespace hone::nn
