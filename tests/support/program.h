// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace hone::test {

struct ProgramResult {
  int status = 0;  // exit status, or 128 + the number of the signal that ended it
  std::string out, err;
};

// A child process with captured stdout and stderr. The destructor kills it if it is still running.
class Program {
 public:
  // argv[0] is the program's path. `environment` (NAME=VALUE) is added to the test's own.
  explicit Program(const std::vector<std::string>& argv,
                   const std::vector<std::string>& environment = {});
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  void send(int signal) const;
  bool has_ended();
  bool has_output() const;                       // whether stdout has any bytes
  bool has_told(const std::string& text) const;  // whether stderr has this text by now
  // Waits for the process to end. If that takes longer, throws std::runtime_error with its output
  // so far.
  ProgramResult wait(std::chrono::seconds limit = std::chrono::seconds(60));

 private:
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  int wait_status_ = 0;
  bool ended_ = false;
};

void sleep_one_millisecond();

// Polls every millisecond. Returns false if the condition does not hold within the limit.
template <typename Condition>
bool wait_until(const Condition& condition, std::chrono::seconds limit = std::chrono::seconds(30)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    sleep_one_millisecond();
  }
  return true;
}

}  // namespace hone::test
