// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "hone/core/check.h"
#include "hone/core/error.h"
#include "hone/core/machine/cpu_info.h"

// CTest reports this status as "skipped": the machine lacks the forced instruction set.
constexpr int kSkipped = 77;

namespace {

// HONE_TEST_ISA is one instruction set of a sweep; HONE_FORCE_ISA limits what a sweep may use.
void force_isa_of_this_run() {
  hone::force_isa_from_environment();
  const char* const name = std::getenv("HONE_TEST_ISA");
  if (name == nullptr) return;
  const hone::Isa isa = hone::parse_isa(name);
  if (hone::machine_has(isa) && !hone::isa_enabled(isa)) {
    hone::fail_unsupported("HONE_TEST_ISA", "an instruction set within HONE_FORCE_ISA", name);
  }
  hone::force_isa(isa);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    force_isa_of_this_run();
  } catch (const hone::Error& error) {
    std::printf("skipped: %s\n", error.what());
    return error.category() == hone::ErrorCategory::Unsupported ? kSkipped : 1;
  }
  return RUN_ALL_TESTS();
}
