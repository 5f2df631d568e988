// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/error.h"

namespace hone::test {

// The message of the Error that `run` throws.
template <class Run>
std::string error_of(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace hone::test
