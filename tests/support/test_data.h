// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>

namespace hone::test {

// A file or folder below HONE_TEST_DATA; empty if that is unset or lacks it.
std::optional<std::filesystem::path> test_data(std::string_view relative);

// A file of the source tree by its relative path ("docs/config.md").
std::filesystem::path source_file(std::string_view relative);

// A new folder that the destructor removes.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// How many files and folders a folder has.
std::size_t entries_in(const std::filesystem::path& folder);

}  // namespace hone::test

// Skips the test if the data is absent: HONE_REQUIRE_TEST_DATA(file, "lm/x.bin");
#define HONE_REQUIRE_TEST_DATA(variable, relative)                               \
  const auto variable##_found = ::hone::test::test_data(relative);               \
  if (!variable##_found) GTEST_SKIP() << "HONE_TEST_DATA has no " << (relative); \
  const std::filesystem::path variable = *variable##_found
