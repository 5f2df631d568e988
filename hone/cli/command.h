// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "hone/core/file/json_io.h"
#include "hone/core/machine/trace.h"
#include "hone/core/thread/executor.h"

namespace hone::cli {

// Options of every command.
struct CommonOptions {
  bool json = false;
  int threads = 0;  // 0 means usable_cpus()
  std::optional<std::uint64_t> seed;
  bool quiet = false;
  int verbose = 0;
  std::string force_isa;
  bool spread = false;  // of the pool's threads
  std::string trace;    // of commands with add_trace_option(); empty if none
};

// The state that commands share. There is one per process.
class Context {
 public:
  CommonOptions common;
  // The process's thread pool, created on first use.
  Executor& executor();
  // With --json, prints the document, which is then the only output on stdout. Otherwise calls
  // `print` for readable output.
  void finish(const Json& document, const std::function<void()>& print);
  // Writes text to stdout at once. Returns false if that fails; finish() then reports why.
  bool print(std::string_view text);
  // The exit status of the process: 0 unless a gate did not hold (1) or finish() found that the
  // reader of stdout is gone (141, as for SIGPIPE).
  int status = 0;

  // With --trace: records from here on, in a zone of this name. Error{Io} when the file cannot be
  // written.
  void start_trace(const std::string& verb);
  // Puts the file under its name; a verb that throws leaves that to the destructor.
  void finish_trace();

 private:
  std::string verb_;
  int output_error_ = 0;  // errno of the first print() that failed
  std::optional<TraceRecording> recording_;
  std::optional<TraceZone> zone_;  // ends before the recording does
};

}  // namespace hone::cli
