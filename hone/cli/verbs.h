// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "hone/cli/command.h"

namespace hone::cli {

// Adds the verbs that need LibTorch: in `hone` none. One file for each program, verbs_hone.cc and
// verbs_torch.cc; the build picks.
void add_torch_verbs(CLI::App& program, Context& context);

// Verbs that this program leaves to `hone-torch`; in that one: none.
std::span<const std::string_view> torch_verbs();

// `hone` replaces itself by `hone-torch` beside it when the verb needs LibTorch, and so returns
// only when it does not (-1). Error{Unsupported} when the verb needs LibTorch and hone-torch is
// absent. In `hone-torch`: always -1.
int hand_over_to_torch(int argc, char** argv);

}  // namespace hone::cli
