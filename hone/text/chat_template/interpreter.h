// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "hone/text/chat_template/syntax.h"

namespace hone::text {

struct RenderLimits {
  std::int64_t steps = 20'000'000;            // statements and expressions
  std::size_t bytes = std::size_t{64} << 20;  // of any text
  std::size_t work = std::size_t{4} << 30;    // bytes that it makes or looks at, all in all
  int depth = 100;                            // of macros that call macros
};

// What a template writes with these names. Throws Error{InvalidArgument} that names the line, or
// the message of raise_exception(), and Error{Resource} beyond the limits.
MarkedText run_template(const Block& program, std::vector<std::pair<std::string, Value>> names,
                        const RenderLimits& limits = {});

}  // namespace hone::text
