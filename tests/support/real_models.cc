// SPDX-License-Identifier: Apache-2.0
#include "tests/support/real_models.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace hone::test {

std::vector<std::string> real_models() {
  namespace fs = std::filesystem;
  const char* const cache = std::getenv("HONE_MODEL_CACHE");
  const char* const home = std::getenv("HOME");
  const fs::path folder = cache != nullptr
                              ? fs::path(cache)
                              : fs::path(home == nullptr ? "" : home) / ".cache" / "hone-models";
  std::vector<std::string> out;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    if (entry.path().extension() == ".gguf") out.push_back(entry.path().string());
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace hone::test
