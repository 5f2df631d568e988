// SPDX-License-Identifier: Apache-2.0
#pragma once

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

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace hone::trainer
