// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>

#include "hone/core/cpu_info.h"
#include "hone/core/error.h"

// CTest reports this status as "skipped": the machine lacks the forced instruction set.
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
