// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/stochastic_position.h"

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "hone/core/check.h"
#include "hone/kernels/sketch/sketch_op.h"
#include "hone/train/exact_scope.h"
#include "hone/train/interop.h"
#include "hone/train/nn/recompute.h"
#include "hone/train/sketch/linear_attention.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr double kTwoPi = 6.283185307179586;

// Standard normal numbers by Philox.
Tensor draw_normal(Index rows, Index cols, std::uint64_t seed, std::uint32_t stream) {
  const Tensor drawn = at::empty({rows, cols}, at::kFloat);
  const kernels::SketchOp op{
      .rows = rows, .cols = cols, .seed = seed, .stream = stream, .scaled = false};
  kernels::materialize(op, 0, 0, view_of(drawn, "noise"), libtorch_executor());
  return drawn;
}

// Multiplies q [batch, tokens, heads, channels] by the encodings of positions from `first` on.
Tensor encode_block(const Tensor& x, const Tensor& freqs, const Tensor& phases,
                    const Tensor& scales, const Tensor& noise, Index first) {
  const ExactScope exact;
  // A position times a frequency has more digits than f32 holds.
  const Tensor positions =
      at::arange(first, first + x.size(1), freqs.options().dtype(at::kDouble)).view({-1, 1});
  const Tensor turns = (freqs.to(at::kDouble).sigmoid() / 2).unsqueeze(2) * positions;
  Tensor angles = (turns.frac() * kTwoPi).to(in_working_type(freqs).scalar_type());
  if (phases.defined()) angles = angles + phases.unsqueeze(2);
  const Tensor gains = at::softplus(in_working_type(scales)).unsqueeze(2);
  const Tensor waves = at::cat({angles.cos() * gains, angles.sin() * gains}, 3);
  const double scale = std::pow(static_cast<double>(noise.size(3) * noise.size(1)), -0.25);
  // [heads, channels, tokens, R], then for each token and head [batch, channels] [channels, R].
  const Tensor encodings = at::matmul(waves, in_working_type(noise) * scale).permute({2, 0, 1, 3});
  return at::matmul(x.to(encodings.scalar_type()).permute({1, 2, 0, 3}), encodings)
      .permute({2, 0, 1, 3})
      .to(x.scalar_type());
}

}  // namespace

StochasticPositionImpl::StochasticPositionImpl(const StochasticPositionOptions& given)
    : options(given) {
  HONE_CHECK(
      options.heads > 0 && options.channels > 0 && options.sines > 0 && options.realizations > 0,
      "StochasticPosition", "heads, channels, sines and realizations of at least 1",
      concat(options.heads, ", ", options.channels, ", ", options.sines, " and ",
             options.realizations));
  reset();
}

void StochasticPositionImpl::reset() {
  const at::NoGradGuard no_grad;
  const std::vector<Index> sizes{options.heads, options.channels, options.sines};
  const auto draw = [&](std::uint32_t stream) {
    const std::uint64_t seed = derived_seed(options.seed, 0, 1);
    return draw_normal(options.heads * options.channels, options.sines, seed, stream).view(sizes);
  };
  freqs = register_parameter("freqs", draw(0) - 4);
  phases = register_parameter("phases", draw(1));
  const Tensor drawn = draw(2);
  scales = register_parameter("scales", drawn * 2 / drawn.norm(2, {2}, true));
  const Index width = 2 * options.sines;
  noise = register_buffer(
      "noise", at::empty({options.heads, options.channels, width, options.realizations}));
  draws = register_buffer("draws", new_counter());
  resample();
}

void StochasticPositionImpl::resample() {
  const at::NoGradGuard no_grad;
  const std::uint32_t stream = counted(draws);
  const Index rows = noise.numel() / options.realizations;
  noise.copy_(draw_normal(rows, options.realizations, derived_seed(options.seed, 0, 2), stream)
                  .view(noise.sizes()));
  set_counter(draws, stream + 1);
}

Tensor StochasticPositionImpl::encode(const Tensor& x, bool is_query, Index first) const {
  HONE_CHECK(x.dim() == 4 && x.size(2) == options.heads && x.size(3) == options.channels,
             "StochasticPosition",
             concat("[batch, tokens, ", options.heads, ", ", options.channels, "]"),
             concat(c10::str(x.sizes())));
  // Encodings of a block take about 16 MiB.
  const Index width = options.heads * options.channels * options.realizations;
  const Index block = std::max<Index>(1, (Index{1} << 22) / width), tokens = x.size(1);
  std::vector<Tensor> parts;
  for (Index begin = 0; begin < tokens; begin += block) {
    const Index at = first + begin;
    const auto segment = [at](const Tensors& in) -> Tensors {
      return {encode_block(in[0], in[1], in[2], in[3], in[4], at)};
    };
    const Tensor part = x.slice(1, begin, std::min(begin + block, tokens));
    const Tensor shift = is_query ? phases : Tensor();
    parts.push_back(recompute(segment, {part, freqs, shift, scales, noise})[0]);
  }
  if (!parts.empty()) return at::cat(parts, 1);
  return at::empty({x.size(0), 0, options.heads, options.realizations}, x.options());
}

std::pair<Tensor, Tensor> StochasticPositionImpl::forward(const Tensor& q, const Tensor& k,
                                                          Index first) {
  return {encode(q, true, first), encode(k, false, first)};
}

}  // namespace hone::nn
