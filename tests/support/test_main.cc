// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>

#include "hone/core/cpu_info.h"
#include "hone/core/error.h"

// ctest shows 77 as "skipped": the forced instruction set is not on this machine.
constexpr int kSkipped = 77;

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    hone::force_isa_from_environment();
  } catch (const hone::Error& error) {
    std::printf("skipped: %s\n", error.what());
    return error.category() == hone::ErrorCategory::Unsupported ? kSkipped : 1;
  }
  return RUN_ALL_TESTS();
}
