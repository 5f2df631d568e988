// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "hone/app/torch/eval_vision.h"
#include "hone/cli/command.h"

namespace hone::cli {

// Adds the commands that need LibTorch, of which `hone` has none. Defined in verbs_hone.cc for
// `hone` and in verbs_torch.cc for `hone-torch`.
void add_torch_verbs(CLI::App& program, Context& context);

// The commands that this program leaves to `hone-torch`; empty in `hone-torch`.
std::span<const std::string_view> torch_verbs();

// Evaluates a classifier of images and prints its card. Only in `hone-torch`, to which
// hand_over_to_torch() leaves such a model.
void run_vision_eval(const app::VisionEvalOptions& options, Context& context);

// If the command needs LibTorch, replaces `hone` by the `hone-torch` next to it and does not
// return; otherwise returns -1. Throws Error{Unsupported} if hone-torch is needed but absent. In
// `hone-torch`, always returns -1.
int hand_over_to_torch(int argc, char** argv);

}  // namespace hone::cli
