// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/app/torch/compress_vision.h"
#include "hone/app/torch/eval_vision.h"
#include "hone/cli/command.h"

namespace hone::cli {

// Evaluates a classifier of images and prints its card. In hone-torch alone, to which
// hand_over_to_torch() leaves such a model; null in `hone`.
[[gnu::weak]] void run_vision_eval(const app::VisionEvalOptions& options, Context& context);
// The same for `hone compress`.
[[gnu::weak]] void run_vision_compress(const app::CompressVisionOptions& options, Context& context);

}  // namespace hone::cli
