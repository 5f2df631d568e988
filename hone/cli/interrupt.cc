// SPDX-License-Identifier: Apache-2.0
#include "hone/cli/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include "hone/core/check.h"

namespace hone::cli {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
std::atomic<int> first_signal{0};
std::stop_source source;

// A signal handler may write to a pipe, but not request a stop; a thread that reads the pipe does.
std::array<int, 2> pipe_ends{-1, -1};
std::thread watcher;

void note_signal(int signal) {
  const int error = errno;
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, signal, std::memory_order_relaxed)) {
    ::signal(signal, SIG_DFL);  // also for one of another kind than the first one
    ::raise(signal);
    return;
  }
  const char byte = 1;
  [[maybe_unused]] const auto written = ::write(pipe_ends[1], &byte, 1);
  errno = error;
}

// Returns when the other end is closed.
void watch() {
  for (char byte = 0;;) {
    const auto got = ::read(pipe_ends[0], &byte, 1);
    if (got == 1) source.request_stop();
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

void install(void (*handler)(int), int flags) {
  struct sigaction action {
  }, before{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  for (const int signal : kSignals) {
    ::sigaction(signal, nullptr, &before);
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace

Interrupt::Interrupt() {
  if (source.stop_requested()) source = std::stop_source();  // else tokens of before are good
  first_signal = 0;
  if (::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) {
    fail(ErrorCategory::Resource, "interrupt", "Could not open a pipe.");
  }
  watcher = std::thread(watch);
  install(note_signal, SA_RESETHAND | SA_RESTART);
}

Interrupt::~Interrupt() {
  install(SIG_DFL, 0);
  ::close(pipe_ends[1]);
  watcher.join();
  ::close(pipe_ends[0]);
}

bool Interrupt::requested() { return first_signal != 0 || source.stop_requested(); }

std::stop_token Interrupt::token() { return source.get_token(); }

void Interrupt::request() { source.request_stop(); }

int Interrupt::signal() { return first_signal.load(std::memory_order_relaxed); }

int Interrupt::exit_status() {
  return signal() > 0 ? 128 + signal() : hone::exit_status(ErrorCategory::Cancelled);
}

}  // namespace hone::cli
