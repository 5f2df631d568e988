// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "hone/core/error.h"

namespace hone::test {

// The message of the Error of this category that `act` throws; empty if it throws none.
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
