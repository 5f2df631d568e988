// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "hone/core/index.h"

namespace hone::app {

// The result lines that a long job writes to FILE, in order. Until finish(), they are in
// FILE.partial. A job that is stopped or killed leaves that file behind, so that another job can
// continue it. An existing FILE is never overwritten.
class ResultFile {
 public:
  // Starts FILE.partial or, with `resume`, continues it if it exists. Throws Error{InvalidArgument}
  // if FILE exists, if FILE.partial exists without `resume`, or if FILE.partial is `input`;
  // Error{Resource} if another process writes it; Error{Io}.
  ResultFile(std::filesystem::path file, bool resume, const std::filesystem::path& input);
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  ~ResultFile();

  const std::filesystem::path& partial() const { return partial_; }
  // Returns the next complete line of an earlier job, until there is none.
  std::optional<std::string> next_done();
  // Adds a line. Call it only after next_done() has returned the last line. The first call cuts off
  // an incomplete line of the earlier job. When the call returns, the operating system has the
  // line, so the line survives the end of the process.
  void append(std::string_view line);
  // Syncs the file and renames it to FILE.
  void finish();

 private:
  void open(bool resume);
  void lock();
  void find_complete_lines();
  void write_all(std::string_view bytes);
  [[noreturn]] void fail_io(std::string_view action) const;

  std::filesystem::path file_, partial_;
  int descriptor_ = -1;
  Index complete_ = 0;   // bytes up to the end of the last complete line
  Index read_ = 0;       // the part of complete_ that next_done() returned
  std::string pending_;  // bytes of the file after read_
  bool is_cut_ = false;  // true if nothing follows the complete lines
  bool is_finished_ = false;
};

}  // namespace hone::app
