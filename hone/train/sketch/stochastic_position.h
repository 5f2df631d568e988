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
// Transformers with linear complexity", arXiv 2105.08399), which gives attention by random features
// relative positions. With gain = softplus(scales), f = sigmoid(freqs) / 2, R realizations and
// standard normal noise, q' and k' [batch, tokens, heads, R] of q and k [batch, tokens, heads,
// channels] satisfy
//   E q'_i . k'_j / sqrt(R) = channels^(-1/2) sum_d q_id k_jd P_d(i - j),
//   P_d(t) = sum_s gain_ds^2 cos(2 pi f_ds t + phase_ds).
class StochasticPositionImpl : public CountedModule<StochasticPositionImpl> {
 public:
  // Error{InvalidArgument} on sizes below 1.
  explicit StochasticPositionImpl(const StochasticPositionOptions& options);
  void reset() override;

  // (q', k') of tokens from position `first` on. Encodings are computed for a few positions at a
  // time, and again for the gradient, which supports backward() only. Error{InvalidArgument} on
  // other heads or channels.
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& q, const torch::Tensor& k,
                                                  Index first = 0);
  // Draws new noise, the next of the seed's.
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
