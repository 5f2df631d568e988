// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/window_batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <vector>

#include "hone/core/machine/trace.h"

namespace hone::task {

void for_each_window_batch(
    std::span<const std::span<const text::TokenId>> windows, Index tokens,
    const std::function<void(const torch::Tensor& ids, const torch::Tensor& targets)>& run) {
  std::map<Index, std::vector<std::span<const text::TokenId>>> of_length;
  for (const auto& window : windows) of_length[std::ssize(window)].push_back(window);
  for (const auto& [length, equal] : of_length) {
    const Index most = std::max<Index>(1, tokens / length);
    for (Index begin = 0; begin < std::ssize(equal); begin += most) {
      const Index count = std::min(most, std::ssize(equal) - begin);
      HONE_TRACE_ZONE("window batch", {"windows", count}, {"tokens", length});
      const torch::Tensor rows = at::empty({count, length}, at::kLong);
      auto* to = rows.data_ptr<std::int64_t>();
      for (Index row = 0; row < count; ++row) {
        to = std::ranges::copy(equal[static_cast<std::size_t>(begin + row)], to).out;
      }
      run(rows.narrow(1, 0, length - 1).contiguous(), rows.narrow(1, 1, length - 1).contiguous());
    }
  }
}

}  // namespace hone::task
