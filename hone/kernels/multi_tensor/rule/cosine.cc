// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/cosine.h"

#include <algorithm>
#include <array>
#include <vector>

#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/schedule/statistics.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "cosine";

void check(const TensorView& momentum, const TensorView& grad) {
  HONE_CHECK(momentum.shape == grad.shape, kOp, concat("a gradient of ", to_text(momentum.shape)),
             to_text(grad.shape));
  for (const TensorView* view : {&momentum, &grad}) {
    if (view->dtype == Dtype::Float32 && view->is_contiguous()) continue;
    fail_unsupported(kOp, "contiguous f32",
                     concat(name_of(view->dtype), " with strides ", to_text(view->strides)));
  }
}

// Chosen once a process: the choice reads the environment, which takes longer than a small tensor.
GatherChunk gather_torque_once() {
  static const GatherChunk gather = choose_gather(Statistics::Torque);
  return gather;
}

Torque torque_of(const TensorView& momentum, const TensorView& grad, Index offset, Index length,
                 GatherChunk gather) {
  ChunkOperands chunk;
  chunk.momentum = momentum.as<float>() + offset;
  chunk.grad = grad.as<float>() + offset;
  chunk.length = length;
  double sums[3];
  gather(chunk, sums);
  return {.mg = sums[1], .mm = sums[2], .gg = sums[0]};
}

}  // namespace

double cosine(const TensorView& momentum, const TensorView& grad, CosineGuard guard,
              Executor& executor) {
  check(momentum, grad);
  const GatherChunk gather = gather_torque_once();
  const Index elements = momentum.elements();
  if (elements <= kChunkElements) {
    return torque_cosine(torque_of(momentum, grad, 0, elements, gather), {}, guard);
  }
  std::vector<Torque> parts(static_cast<std::size_t>(ceil_div(elements, kChunkElements)));
  executor.parallel_for(static_cast<Index>(parts.size()), 1, [&](Index begin, Index end, int) {
    for (Index c = begin; c < end; ++c) {
      const Index offset = c * kChunkElements;
      parts[static_cast<std::size_t>(c)] =
          torque_of(momentum, grad, offset, std::min(kChunkElements, elements - offset), gather);
    }
  });
  Torque total;
  for (const Torque& part : parts) total += part;
  return torque_cosine(total, {}, guard);
}

void cosine_rows(const TensorView& momentum, const TensorView& grad, Executor& executor,
                 std::span<double> out) {
  check(momentum, grad);
  const int rank = momentum.shape.rank();
  const Index length = rank == 0 ? 1 : momentum.shape[rank - 1];
  const Index rows = length == 0 ? 0 : momentum.elements() / length;
  HONE_CHECK(static_cast<Index>(out.size()) == rows, kOp, concat(rows, " places for rows"),
             out.size());
  const GatherChunk gather = gather_torque_once();
  const Index grain = std::max<Index>(1, kChunkElements / std::max<Index>(1, length));
  executor.parallel_for(rows, grain, [&](Index begin, Index end, int) {
    for (Index row = begin; row < end; ++row) {
      out[static_cast<std::size_t>(row)] = torque_cosine(
          torque_of(momentum, grad, row * length, length, gather), {}, CosineGuard::Clamp);
    }
  });
}

}  // namespace hone::kernels
