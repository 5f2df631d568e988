// SPDX-License-Identifier: Apache-2.0
#include "hone/cli/verbs.h"

namespace hone::cli {

void add_torch_verbs(CLI::App& program, Context& context) {
  add_demo(program, context);
  add_train(program, context);
  add_classify(program, context);
  add_tune(program, context);
}

std::span<const std::string_view> torch_verbs() { return {}; }

int hand_over_to_torch(int, char**) { return -1; }

}  // namespace hone::cli
