// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "hone/core/error.h"

namespace hone::test {

// The message of the Error{InvalidArgument} that `act` throws, empty when none.
template <class Act>
std::string refusal(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
    return error.what();
  }
  return {};
}

}  // namespace hone::test
