// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <span>

#include "hone/text/tokenizer.h"

namespace hone::task {

// Calls run(ids, targets) for batches of windows of equal length, shortest first, so that there is
// no padding. A batch has at most `tokens` tokens, or one window. Every window must have at least
// two tokens; all but the first are targets. ids and targets are [windows, length - 1] int64 on the
// CPU.
void for_each_window_batch(
    std::span<const std::span<const text::TokenId>> windows, Index tokens,
    const std::function<void(const torch::Tensor& ids, const torch::Tensor& targets)>& run);

}  // namespace hone::task
