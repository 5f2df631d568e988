// SPDX-License-Identifier: Apache-2.0
#include "tests/support/program.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace hone::test {
namespace {

int make_capture(const char* name) {
  const int descriptor = ::memfd_create(name, MFD_CLOEXEC);
  if (descriptor < 0) throw std::runtime_error("memfd_create");
  return descriptor;
}

std::string read_capture(int descriptor) {
  std::string text(static_cast<std::size_t>(::lseek(descriptor, 0, SEEK_END)), '\0');
  const ssize_t got = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& string : strings) out.push_back(string.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Program::Program(const std::vector<std::string>& argv, const std::vector<std::string>& environment)
    : out_(make_capture("stdout")), err_(make_capture("stderr")) {
  std::vector<std::string> arguments = argv, variables = environment;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  const std::vector<char*> argument_list = pointers(arguments), variable_list = pointers(variables);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ > 0) return;
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(out_, STDOUT_FILENO);
  ::dup2(err_, STDERR_FILENO);
  ::signal(SIGHUP, SIG_DFL);  // tests may run under nohup
  ::execve(argument_list[0], argument_list.data(), variable_list.data());
  ::_exit(126);
}

Program::~Program() {
  if (!ended_) {
    send(SIGKILL);
    ::waitpid(pid_, &wait_status_, 0);
  }
  ::close(out_);
  ::close(err_);
}

void Program::send(int signal) const { ::kill(pid_, signal); }

bool Program::has_ended() {
  if (!ended_) ended_ = ::waitpid(pid_, &wait_status_, WNOHANG) == pid_;
  return ended_;
}

bool Program::has_output() const { return ::lseek(out_, 0, SEEK_END) > 0; }

bool Program::has_told(const std::string& text) const {
  return read_capture(err_).find(text) != std::string::npos;
}

ProgramResult Program::wait(std::chrono::seconds limit) {
  const bool in_time = wait_until([this] { return has_ended(); }, limit);
  ProgramResult result{.out = read_capture(out_), .err = read_capture(err_)};
  if (!in_time)
    throw std::runtime_error("still running; stdout: " + result.out + "; stderr: " + result.err);
  result.status =
      WIFEXITED(wait_status_) ? WEXITSTATUS(wait_status_) : 128 + WTERMSIG(wait_status_);
  return result;
}

void sleep_one_millisecond() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace hone::test
