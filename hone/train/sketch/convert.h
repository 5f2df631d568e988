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
  Index rank = 0;        // or 0: of a low-rank layer, the smallest within max_error, if it is above
  double max_error = 0;  // relative, in (0, 1); of the outputs with Fit::Activation
  Index terms = 1;       // of a sketched layer
  std::uint64_t seed = 0;
  const sketch::InputMoments* inputs = nullptr;  // for Fit::Activation
  // What fit_svd gave a low-rank layer for `rank` or a larger one; it is not run again then.
  const sketch::FactorPair* factors = nullptr;
  Epilogue epilogue = {};
};

// A factored layer that approximates a trained one. Keeps type, device, bias, requires_grad, the
// training mode, and of an nn::Linear the library of products. Error{InvalidArgument} for a fit
// that the mode does not have, for both or neither of rank and max_error, for NaN or infinity in
// the weight or bias, and what check_fit_size() refuses.
FactoredLinear from_linear(const torch::nn::LinearImpl& linear, const FitOptions& options);

// Error{InvalidArgument} for terms of a low-rank layer, whose rank is at most the smaller side; and
// for a sketched rank of more than 2 terms (inputs + outputs): published layers have more terms
// than they need, but no term wider than its weight.
void check_fit_size(std::string_view call, const FactorSize& size, FactorMode mode, Index terms);

// A low-rank layer of the smallest rank whose weight is within this relative error of the layer's.
// Where its facts().break_even is 1 or more, to_dense is the cheaper layer.
FactoredLinear recompress(FactoredLinearImpl& layer, double max_error);

// The dense layer of the same weight and bias, without the epilogue.
torch::nn::Linear to_dense(FactoredLinearImpl& layer);

// bias + E[x] (W - W'): the bias that makes the mean output of a layer W' that of the layer that it
// approximates. Weights are [out, in].
torch::Tensor refitted_bias(const torch::Tensor& bias, const torch::Tensor& weight,
                            const torch::Tensor& effective, const sketch::InputMoments& inputs);

}  // namespace hone::nn
