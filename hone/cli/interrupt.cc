// SPDX-License-Identifier: Apache-2.0
#include "hone/cli/interrupt.h"

#include <array>
#include <csignal>

#include "hone/core/error.h"

namespace hone::cli {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
std::atomic<int> first_signal{0};

void note_signal(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal, std::memory_order_relaxed);
  Interrupt::flag().store(true, std::memory_order_relaxed);
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
  flag() = false;
  first_signal = 0;
  install(note_signal, SA_RESETHAND | SA_RESTART);
}

Interrupt::~Interrupt() { install(SIG_DFL, 0); }

std::atomic<bool>& Interrupt::flag() {
  static std::atomic<bool> requested{false};
  return requested;
}

int Interrupt::exit_status() {
  const int signal = first_signal.load(std::memory_order_relaxed);
  return signal > 0 ? 128 + signal : hone::exit_status(ErrorCategory::Cancelled);
}

}  // namespace hone::cli
