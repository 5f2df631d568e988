// SPDX-License-Identifier: Apache-2.0
#include "hone/core/machine/process_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace hone {

Index resident_bytes() {
  std::ifstream file("/proc/self/statm");
  Index all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

Index peak_resident_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    Index kib = 0;
    if (word == "VmHWM:" && file >> kib) return kib * 1024;
  }
  return 0;
}

bool reset_resident_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << 5;
  return static_cast<bool>(file.flush());
}

void release_free_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace hone
