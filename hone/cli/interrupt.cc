// SPDX-License-Identifier: Apache-2.0
#include "hone/cli/interrupt.h"

#include <csignal>

namespace hone::cli {
namespace {

void note_signal(int) { Interrupt::flag().store(true, std::memory_order_relaxed); }

void install(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  flag() = false;
  install(note_signal, SA_RESETHAND | SA_RESTART);
}

Interrupt::~Interrupt() { install(SIG_DFL, 0); }

std::atomic<bool>& Interrupt::flag() {
  static std::atomic<bool> requested{false};
  return requested;
}

}  // namespace hone::cli
