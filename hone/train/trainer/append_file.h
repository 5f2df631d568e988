// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace hone::trainer {

// A file that only grows. What is appended is handed to the system at once, so that a killed
// process loses nothing but a torn end.
class AppendFile {
 public:
  // Replaces the file by `begin`. Error{Io} where that cannot be written, as in append().
  AppendFile(std::filesystem::path path, std::string_view begin);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  void append(std::string_view bytes);
  // Writes over what was appended last; `bytes` may not be shorter.
  void replace_last(std::string_view bytes);
  // What was appended survives a power cut from now on. Warns once where somebody has removed the
  // file or put another in its place.
  void sync();

 private:
  void write_at(std::size_t offset, std::string_view bytes);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::size_t last_ = 0, end_ = 0;  // offsets: of what was appended last, and behind it
  bool is_missing_ = false;
};

}  // namespace hone::trainer
