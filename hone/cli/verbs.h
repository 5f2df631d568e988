// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "hone/cli/command.h"

namespace hone::cli {

// When a command needs LibTorch, which `hone` does not load: it then becomes `hone-torch`.
enum class NeedsTorch {
  Never,
  Always,
  ByInput,  // for a classifier of images, and to serve a TorchScript file
  Gains,    // runs without, but with fewer rows
};

// A command, or a bench below `hone bench`. cmd_<name>.cc defines `add`, which adds the subcommand
// with its options and a callback that runs the job.
struct VerbEntry {
  std::string_view name;
  NeedsTorch torch = NeedsTorch::Never;
  void (*add)(CLI::App& parent, Context& context) = nullptr;  // null in a program without it
};

// Every command, in the order of the help.
std::span<const VerbEntry> verb_entries();
std::span<const VerbEntry> bench_entries();
// Adds those of them that this program has.
void add_entries(CLI::App& parent, Context& context, std::span<const VerbEntry> entries);

// If the command needs LibTorch, replaces `hone` by the `hone-torch` next to it and does not
// return; otherwise returns -1. Throws Error{Unsupported} if hone-torch is needed but absent. In
// `hone-torch`, always returns -1.
int hand_over_to_torch(int argc, char** argv);

}  // namespace hone::cli
