// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <utility>

#include "hone/core/index.h"
#include "hone/train/sketch/counter.h"

namespace hone::nn {

struct StochasticPositionOptions {
  Index heads = 1, channels = 1;  // of a head
  Index sines = 5, realizations = 256;
  std::uint64_t seed = 0;  // of parameters and noise
};

// Sinusoidal stochastic positional encoding (Liutkus et al., "Relative positional encoding for
// Transformers with linear complexity", arXiv 2105.08399). It adds relative positions to attention
// by random features. Let gain = softplus(scales), f = sigmoid(freqs) / 2, R the number of
// realizations, and the noise standard normal. Then q' and k' [batch, tokens, heads, R] of q and k
// [batch, tokens, heads, channels] satisfy
//   E q'_i . k'_j / sqrt(R) = channels^(-1/2) sum_d q_id k_jd P_d(i - j),
//   P_d(t) = sum_s gain_ds^2 cos(2 pi f_ds t + phase_ds).
class StochasticPositionImpl : public CountedModule<StochasticPositionImpl> {
 public:
  // Throws Error{InvalidArgument} for sizes below 1.
  explicit StochasticPositionImpl(const StochasticPositionOptions& options);
  void reset() override;

  // Returns (q', k') of tokens from position `first` on. Computes encodings for a few positions at
  // a time, and again for the gradient, which supports backward() only. Throws
  // Error{InvalidArgument} for other heads or channels.
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& q, const torch::Tensor& k,
                                                  Index first = 0);
  // Draws the next noise of the seed.
  void resample();

  StochasticPositionOptions options;
  torch::Tensor freqs, phases, scales;  // [heads, channels, sines]
  torch::Tensor noise;                  // buffer [heads, channels, 2 sines, realizations]
  torch::Tensor draws;                  // buffer, a counter: how often noise was drawn

 private:
  torch::Tensor encode(const torch::Tensor& x, bool is_query, Index first) const;
};
TORCH_MODULE(StochasticPosition);

}  // namespace hone::nn
