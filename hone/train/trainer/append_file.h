// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace hone::trainer {

// A file that only grows. Appended data is passed to the system at once, so that a killed process
// loses at most an incomplete last record.
class AppendFile {
 public:
  // Replaces the file by `begin`. Throws Error{Io}, like append(), if the write fails.
  AppendFile(std::filesystem::path path, std::string_view begin);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  void append(std::string_view bytes);
  // Overwrites the last append; `bytes` must not be shorter.
  void replace_last(std::string_view bytes);
  // Makes everything appended so far survive a power cut. Warns once if the file has been removed
  // or replaced.
  void sync();

 private:
  void write_at(std::size_t offset, std::string_view bytes);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::size_t last_ = 0, end_ = 0;  // offsets of the last append: its beginning and end
  bool is_missing_ = false;
};

}  // namespace hone::trainer
