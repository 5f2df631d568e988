// SPDX-License-Identifier: Apache-2.0
#include "hone/core/batch/batcher.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hone/core/check.h"

namespace hone {
namespace {

constexpr std::size_t kMaxShapes = 256;  // whose durations are remembered

}  // namespace

std::string_view name_of(BatchRefusal refusal) {
  return refusal == BatchRefusal::QueueFull ? "queue_full" : "latency_limit";
}

Batcher::Batcher(const BatcherOptions& options) : options_(options) {
  HONE_CHECK(options.max_batch >= 1, "batcher", "batches of at least 1 row", options.max_batch);
  HONE_CHECK(options.max_wait_ns >= 0, "batcher", "a wait of at least 0 ns", options.max_wait_ns);
  HONE_CHECK(options.latency_limit_ns >= 0, "batcher", "a latency limit of at least 0 ns",
             options.latency_limit_ns);
  HONE_CHECK(options.max_queue >= 1, "batcher", "a queue of at least 1 request", options.max_queue);
}

std::int64_t Batcher::service_ns(const Group& group, Index rows) {
  if (!group.is_measured) return 0;
  return std::llround(group.cost.predict({.prefill_tokens = rows}) * 1e9);
}

std::int64_t Batcher::service_ns(const Batch& batch) const {
  const auto found = groups_.find(batch.shape);
  return found == groups_.end() ? 0 : service_ns(found->second, std::ssize(batch.rows));
}

bool Batcher::Group::start_trial() {
  if (++refused <= refusals_before_trial) return false;
  refused = 0;
  refusals_before_trial = std::min<Index>(2 * refusals_before_trial, 1024);
  is_on_trial = true;
  return true;
}

std::optional<BatchRefusal> Batcher::submit(RequestId id, std::uint64_t shape, TimeNs now) {
  ++counters_.submitted;
  const auto refuse = [this](BatchRefusal refusal) {
    ++counters_.refused;
    return refusal;
  };
  if (is_full()) return refuse(BatchRefusal::QueueFull);
  Group& group = groups_[shape];
  if (has_limit() && work_ahead(now) + service_ns(group, 1) > options_.latency_limit_ns) {
    const bool is_idle = !running_ && retries_.empty() && counters_.waiting == 0;
    if (!is_idle || !group.start_trial()) return refuse(BatchRefusal::LatencyLimit);
  }
  group.waiting.push_back({.id = id, .arrived = now});
  ++counters_.waiting;
  return std::nullopt;
}

// How long the batch in progress, the rows to be retried, and the waiting requests will take.
std::int64_t Batcher::work_ahead(TimeNs now) const {
  std::int64_t work = 0;
  if (running_) {
    work = std::max<std::int64_t>(0, running_->started + service_ns(running_->batch) - now);
  }
  for (const Batch& row : retries_) work += service_ns(row);
  for (const auto& [shape, group] : groups_) {
    const Index rows = std::ssize(group.waiting), rest = rows % options_.max_batch;
    work += rows / options_.max_batch * service_ns(group, options_.max_batch);
    work += rest > 0 ? service_ns(group, rest) : 0;
  }
  return work;
}

bool Batcher::cancel(RequestId id) {
  if (std::erase_if(retries_, [id](const Batch& row) { return row.rows.front() == id; }) > 0) {
    --counters_.running;
    ++counters_.cancelled;
    return true;
  }
  for (auto& [shape, group] : groups_) {
    const auto removed =
        std::erase_if(group.waiting, [id](const Waiting& waiting) { return waiting.id == id; });
    if (removed == 0) continue;
    --counters_.waiting;
    ++counters_.cancelled;
    if (group.waiting.empty()) group.is_on_trial = false;
    return true;
  }
  return false;
}

std::vector<RequestId> Batcher::cancel_waiting() {
  std::vector<RequestId> ids;
  for (auto& [shape, group] : groups_) {
    for (const Waiting& waiting : group.waiting) ids.push_back(waiting.id);
    group.waiting.clear();
    group.is_on_trial = false;
  }
  counters_.waiting -= std::ssize(ids);
  for (const Batch& row : std::exchange(retries_, {})) {
    ids.push_back(row.rows.front());
    --counters_.running;
  }
  counters_.cancelled += std::ssize(ids);
  return ids;
}

// When the group's next batch should leave if the function is idle then. The limit leaves half of
// its slack to callers that come late.
TimeNs Batcher::leave_time(const Group& group) const {
  const TimeNs oldest = group.waiting.front().arrived;
  const Index rows = std::ssize(group.waiting);
  if (rows >= options_.max_batch || is_full()) return oldest;
  const TimeNs waited = oldest + options_.max_wait_ns;
  if (!has_limit()) return waited;
  const std::int64_t slack = options_.latency_limit_ns - service_ns(group, rows);
  return std::min(waited, oldest + std::max<std::int64_t>(0, slack) / 2);
}

void Batcher::refuse_late(Group& group, TimeNs now) {
  while (has_limit() && !group.waiting.empty() && !group.is_on_trial) {
    const Waiting& oldest = group.waiting.front();
    if (now - oldest.arrived + service_ns(group, 1) <= options_.latency_limit_ns) return;
    --counters_.waiting;
    decide(oldest.id, BatchOutcome::Kind::Refused);
    group.waiting.pop_front();
  }
}

std::optional<Batch> Batcher::next(TimeNs now) {
  if (running_) return std::nullopt;
  if (!retries_.empty()) {
    Batch row = std::move(retries_.front());
    retries_.pop_front();
    return start(std::move(row), now);
  }
  std::pair<const std::uint64_t, Group>* chosen = nullptr;  // whose oldest request is the oldest
  for (auto& entry : groups_) {
    Group& group = entry.second;
    refuse_late(group, now);
    if (group.waiting.empty() || leave_time(group) > now) continue;
    const TimeNs arrived = group.waiting.front().arrived;
    if (chosen == nullptr || arrived < chosen->second.waiting.front().arrived) chosen = &entry;
  }
  if (chosen == nullptr) return std::nullopt;
  return start(take(chosen->first, chosen->second, now), now);
}

Batch Batcher::take(std::uint64_t shape, Group& group, TimeNs now) {
  Index rows = std::min(options_.max_batch, static_cast<Index>(group.waiting.size()));
  const std::int64_t waited = now - group.waiting.front().arrived;
  while (has_limit() && rows > 1 && waited + service_ns(group, rows) > options_.latency_limit_ns) {
    --rows;
  }
  Batch batch{.shape = shape};
  for (; rows > 0; --rows) {
    batch.rows.push_back(group.waiting.front().id);
    group.waiting.pop_front();
  }
  counters_.waiting -= std::ssize(batch.rows);
  counters_.running += std::ssize(batch.rows);
  return batch;
}

Batch Batcher::start(Batch batch, TimeNs now) {
  running_ = {.batch = batch, .started = now};
  return batch;
}

void Batcher::complete(bool succeeded, TimeNs now) {
  HONE_REQUIRE(running_.has_value(), "batcher", "No batch is in progress.");
  const Running done = *std::exchange(running_, std::nullopt);
  Group& group = groups_[done.batch.shape];
  if (succeeded) {
    if (group.is_on_trial) group.cost = {};
    group.cost.observe({.prefill_tokens = std::ssize(done.batch.rows)},
                       seconds_between(done.started, now));
    group.is_measured = true;
    if (service_ns(group, 1) <= options_.latency_limit_ns) group.refusals_before_trial = 1;
  }
  group.is_on_trial = false;
  for (const RequestId id : done.batch.rows) {
    if (!succeeded && done.batch.rows.size() > 1) {
      retries_.push_back({.shape = done.batch.shape, .rows = {id}});
      continue;
    }
    --counters_.running;
    decide(id, succeeded ? BatchOutcome::Kind::Finished : BatchOutcome::Kind::Failed);
  }
  forget_idle_shapes();
}

// Keeps the memory bounded whatever keys clients send.
void Batcher::forget_idle_shapes() {
  if (groups_.size() <= kMaxShapes) return;
  std::erase_if(groups_, [](const auto& entry) { return entry.second.waiting.empty(); });
}

void Batcher::decide(RequestId id, BatchOutcome::Kind kind) {
  counters_.finished += kind == BatchOutcome::Kind::Finished;
  counters_.failed += kind == BatchOutcome::Kind::Failed;
  counters_.refused += kind == BatchOutcome::Kind::Refused;
  outcomes_.push_back({.kind = kind, .id = id});
}

std::vector<BatchOutcome> Batcher::take_outcomes() { return std::exchange(outcomes_, {}); }

std::optional<TimeNs> Batcher::next_timer() const {
  std::optional<TimeNs> next;
  for (const auto& [shape, group] : groups_) {
    if (group.waiting.empty()) continue;
    const TimeNs time = leave_time(group);
    next = next ? std::min(*next, time) : time;
  }
  return next;
}

}  // namespace hone
