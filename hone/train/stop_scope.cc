// SPDX-License-Identifier: Apache-2.0
#include <stop_token>

#include "hone/train/stop_scope.h"

#include "hone/core/check.h"

namespace hone {
namespace {

std::atomic<StopScope*> innermost{nullptr};

}  // namespace

StopScope::StopScope(const std::stop_token& stop, double grace_seconds, const Clock& clock)
    : stop_(stop), grace_seconds_(grace_seconds), clock_(clock), outer_(innermost.exchange(this)) {}

StopScope::~StopScope() { innermost = outer_; }

void StopScope::check() {
  if (!stop_.stop_requested()) return;
  const std::int64_t now = clock_.now_ns();
  std::int64_t seen = 0;
  if (seen_ns_.compare_exchange_strong(seen, now)) seen = now;
  if (seconds_between(seen, now) < grace_seconds_) return;
  fail(ErrorCategory::Cancelled, "train", "The run was interrupted.");
}

void check_stop() {
  if (StopScope* const scope = innermost.load(std::memory_order_relaxed)) scope->check();
}

}  // namespace hone
