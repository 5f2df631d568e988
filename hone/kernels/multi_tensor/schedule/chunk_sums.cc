// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/schedule/chunk_sums.h"

#include <cmath>

#include "hone/kernels/multi_tensor/schedule/grad_norm.h"

namespace hone::kernels {

ChunkSums::ChunkSums(const MultiTensorPlan& plan, Statistics statistics, float grad_limit)
    : plan_(plan), grad_limit_(grad_limit), per_chunk_(count_sums(statistics)) {
  if (statistics == Statistics::None) return;
  gather_ = choose_gather(statistics, std::isfinite(grad_limit));
  const Slot last = statistics == Statistics::Norm ? Slot::Grad : Slot::Momentum;
  slots_ = static_cast<int>(last) + 1;
  sums_.resize(static_cast<std::size_t>(plan.chunks() * per_chunk_));
}

TorqueSums ChunkSums::of_tensor(Index tensor) const {
  double total[6] = {};
  const Index end = plan_.first_chunk(tensor + 1);
  for (Index c = plan_.first_chunk(tensor); c < end; ++c) {
    for (Index s = 0; s < per_chunk_; ++s) {
      total[s] += sums_[static_cast<std::size_t>(c * per_chunk_ + s)];
    }
  }
  return {total[0], total[1], total[2], total[3], total[4], total[5]};
}

bool ChunkSums::measure_norm(const StepControl& control, StepReport& report) const {
  double total = 0;
  for (Index tensor = 0; tensor < plan_.tensors(); ++tensor) {
    const double gg = of_tensor(tensor).gg;
    if (!std::isfinite(gg) && report.first_nonfinite_tensor < 0) {
      report.first_nonfinite_tensor = tensor;
    }
    total += gg;
  }
  return report_norm(control, std::sqrt(total), report);
}

}  // namespace hone::kernels
