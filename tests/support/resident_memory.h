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

// Field 0 of /proc/self/statm is the address space in use, field 1 what of it is resident.
inline Index statm_bytes(int field) {
  std::ifstream file("/proc/self/statm");
  Index pages[2] = {};
  file >> pages[0] >> pages[1];
  return pages[field] * ::sysconf(_SC_PAGESIZE);
}
inline Index address_space_bytes() { return statm_bytes(0); }

// The memory of this process that the system provides.
inline Index resident_bytes() { return statm_bytes(1); }

}  // namespace hone::test
