// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csetjmp>

namespace hone::data {

// Calls of a C library that reports an error through a function which must not return, as libpng
// and libjpeg do: that function writes the message and calls give_up().
struct GuardedCalls {
  std::jmp_buf jump;
  std::array<char, 256> message = {};

  [[noreturn]] void give_up() { std::longjmp(jump, 1); }

  // Returns false if the library gave up. `calls` makes no object with a destructor, because none
  // would run then.
  template <typename Calls>
  bool run(const Calls& calls) {
    if (setjmp(jump) != 0) return false;
    calls();
    return true;
  }
};

}  // namespace hone::data
