// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <span>

#include "hone/text/tokenizer.h"

namespace hone::task {

// Batches of windows of equal length, the shortest ones first, so that no position is padding: a
// batch has at most `tokens` tokens, or one window. Every window has at least two tokens, of which
// all but the first are targets. Calls run(ids, targets), each [windows, length - 1] int64 on the
// CPU.
void for_each_window_batch(
    std::span<const std::span<const text::TokenId>> windows, Index tokens,
    const std::function<void(const torch::Tensor& ids, const torch::Tensor& targets)>& run);

}  // namespace hone::task
