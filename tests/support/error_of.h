// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "hone/core/error.h"

namespace hone::test {

// Returns the message of the Error that `act` throws, or "no error".
template <class Act>
[[nodiscard]] std::string error_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Returns the message of the Error of this category that `act` throws; empty if it throws none.
template <class Act>
[[nodiscard]] std::string refusal(const Act& act,
                                  ErrorCategory category = ErrorCategory::InvalidArgument) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), category) << error.what();
    return error.what();
  }
  return {};
}

}  // namespace hone::test
