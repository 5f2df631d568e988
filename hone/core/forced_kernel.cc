// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <sstream>

#include "hone/core/cpu_info.h"

// In its own file, so that code that needs only this function links without Highway.
namespace hone {

std::string forced_kernel(std::string_view op) {
  const char* value = std::getenv("HONE_FORCE_KERNEL");
  std::istringstream list(value == nullptr ? "" : value);
  for (std::string item; std::getline(list, item, ',');) {
    const auto colon = item.find(':');
    if (colon != std::string::npos && item.substr(0, colon) == op) return item.substr(colon + 1);
  }
  return {};
}

}  // namespace hone
