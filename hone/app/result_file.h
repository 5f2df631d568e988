// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "hone/core/index.h"

namespace hone::app {

// The lines of results that a long job writes to FILE, in order. Until finish() they are in
// FILE.partial, which a job that was stopped or killed leaves behind, so that another one can
// continue it. A file that is there already is never overwritten.
class ResultFile {
 public:
  // Starts FILE.partial, or continues it with `resume` if there is one. Error{InvalidArgument} if
  // FILE exists or, without `resume`, FILE.partial, and if that is `input`; Error{Resource} if
  // another process writes it; Error{Io}.
  ResultFile(std::filesystem::path file, bool resume, const std::filesystem::path& input);
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  ~ResultFile();

  const std::filesystem::path& partial() const { return partial_; }
  // The next complete line of an earlier job, until there is none.
  std::optional<std::string> next_done();
  // Adds a line, once next_done() has returned the last one. What the earlier job wrote of another
  // line is cut off at the first call. The line is with the system when the call returns, and
  // survives the end of the process.
  void append(std::string_view line);
  // Syncs the file and gives it its name.
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
  Index read_ = 0;       // of them, those that next_done() returned
  std::string pending_;  // bytes of the file from read_ on
  bool is_cut_ = false;  // nothing follows the complete lines
  bool is_finished_ = false;
};

}  // namespace hone::app
