// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_data.h"

#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <string>

namespace hone::test {

std::optional<std::filesystem::path> test_data(std::string_view relative) {
  const char* root = std::getenv("HONE_TEST_DATA");
  if (root == nullptr || *root == '\0') return std::nullopt;
  const std::filesystem::path path = std::filesystem::path(root) / relative;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

std::filesystem::path source_file(std::string_view relative) {
  return std::filesystem::path(HONE_SOURCE_DIR) / relative;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "hone_test_XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::size_t entries_in(const std::filesystem::path& folder) {
  using std::filesystem::directory_iterator;
  return static_cast<std::size_t>(std::distance(directory_iterator(folder), directory_iterator()));
}

}  // namespace hone::test
