// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <fstream>

#include "hone/core/index.h"

namespace hone::test {

// Whether resident_bytes() counts what the program uses. Sanitizers add memory of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCountsMemory = false;
#else
inline constexpr bool kCountsMemory = true;
#endif

// The memory of this process that the system provides.
inline Index resident_bytes() {
  std::ifstream file("/proc/self/statm");
  Index total = 0, resident = 0;
  file >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace hone::test
