// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <string_view>

#include "hone/train/sketch/factored_linear.h"
#include "hone/train/sketch/fit.h"

namespace hone::nn {

enum class Fit {
  Random,      // sketched: fit_random
  Projection,  // sketched: fit_projection
  Svd,         // low-rank: fit_svd
  Activation,  // fit_projection or fit_svd with the moments of the inputs, and a refitted bias
};

struct FitOptions {
  FactorMode mode = FactorMode::LowRank;
  Fit fit = Fit::Svd;
  Index rank = 0;        // 0 with max_error of a low-rank layer: the smallest rank within it
  double max_error = 0;  // relative, in (0, 1); error of the outputs with Fit::Activation
  Index terms = 1;       // of a sketched layer
  std::uint64_t seed = 0;
  const sketch::InputMoments* inputs = nullptr;  // for Fit::Activation
  // The result of fit_svd for `rank` or a larger one of a low-rank layer; if set, it is not
  // computed again.
  const sketch::FactorPair* factors = nullptr;
  Epilogue epilogue = {};
};

// Returns a factored layer that approximates a trained one. Keeps type, device, bias,
// requires_grad, training mode, and the matmul backend of an nn::Linear. Throws
// Error{InvalidArgument} for a fit that the mode does not have, both or neither of rank and
// max_error, NaN or infinity in the weight or bias, and like check_fit_size().
FactoredLinear from_linear(const torch::nn::LinearImpl& linear, const FitOptions& options);

// Throws Error{InvalidArgument} for a low-rank layer with terms or a rank above the smaller side,
// and for a sketched rank above 2 terms (inputs + outputs). Published layers may have more terms
// than they need, but no term is wider than its weight.
void check_fit_size(std::string_view call, const FactorSize& size, FactorMode mode, Index terms);

// Returns a low-rank layer of the smallest rank whose weight is within this relative error of the
// layer's weight. If its facts().break_even is 1 or more, to_dense() gives a cheaper layer.
FactoredLinear recompress(FactoredLinearImpl& layer, double max_error);

// The dense layer of the same weight and bias, without the epilogue.
torch::nn::Linear to_dense(FactoredLinearImpl& layer);

// Returns bias + E[x] (W - W'): the bias for which a layer with the approximate weight W' has the
// same mean output as the original layer. Weights are [out, in].
torch::Tensor refitted_bias(const torch::Tensor& bias, const torch::Tensor& weight,
                            const torch::Tensor& effective, const sketch::InputMoments& inputs);

}  // namespace hone::nn
