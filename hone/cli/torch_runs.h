// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/app/torch/compress_vision.h"
#include "hone/app/torch/eval_vision.h"
#include "hone/app/torch/serve/serve_module.h"
#include "hone/cli/command.h"

namespace hone::cli {

// Jobs on models that need LibTorch, of commands that take others, too. They are in hone-torch
// alone, to which hand_over_to_torch() leaves such a model; null in `hone`.

// Evaluates a classifier of images and prints its card.
[[gnu::weak]] void run_vision_eval(const app::VisionEvalOptions& options, Context& context);
[[gnu::weak]] void run_vision_compress(const app::CompressVisionOptions& options, Context& context);
[[gnu::weak]] void run_module_serve(const app::ServeModuleOptions& options);

}  // namespace hone::cli
