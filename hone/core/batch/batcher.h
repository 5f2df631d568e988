// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "hone/core/batch/cost_model.h"
#include "hone/core/batch/request_id.h"
#include "hone/core/index.h"
#include "hone/core/machine/clock.h"

namespace hone {

struct BatcherOptions {
  Index max_batch = 8;
  std::int64_t max_wait_ns = 0;  // how long a request waits for others to share its batch
  // Longest time from arrival to result; 0 means no limit. Requests that cannot meet it are
  // refused.
  std::int64_t latency_limit_ns = 0;
  Index max_queue = 256;
};

enum class BatchRefusal { QueueFull, LatencyLimit };
std::string_view name_of(BatchRefusal refusal);  // "queue_full", "latency_limit"

// Rows that run together. All have the shape key `shape`.
struct Batch {
  std::uint64_t shape = 0;
  std::vector<RequestId> rows{};
};

struct BatchOutcome {
  enum class Kind { Finished, Failed, Refused } kind = Kind::Finished;
  RequestId id = 0;
};

// At any time submitted = finished + failed + refused + cancelled + running + waiting.
struct BatcherCounters {
  Index submitted = 0, finished = 0, failed = 0, refused = 0, cancelled = 0;
  Index running = 0, waiting = 0;
};

// Batches requests of one forward-only function, such as an embedding or a classifier. A pure state
// machine: the caller passes in the time, which must not decrease. One batch runs at a time.
//
// Requests with equal shape keys share a batch, in order of arrival. When the function is idle, a
// batch starts if it or the queue is full, or if its oldest request has waited max_wait_ns or would
// have waited half of the time that the latency limit leaves. With max_wait_ns = 0, a batch starts
// whenever the function is idle. The rows of a failed batch run again one by one, so that one bad
// row fails alone.
//
// The duration of a batch is predicted from earlier batches of the same shape. Before the first
// one, the prediction is 0.
class Batcher {
 public:
  explicit Batcher(const BatcherOptions& options);

  // Accepts a request, or refuses it: if the queue is full, or if the predicted time of the batch
  // in progress, the waiting requests and its own run exceeds the latency limit.
  std::optional<BatchRefusal> submit(RequestId id, std::uint64_t shape, TimeNs now);
  // From now on, batches start whenever the function is idle.
  void stop_waiting() { options_.max_wait_ns = 0; }
  // Removes a request that waits, or that waits to be retried, and returns whether there was one. A
  // running one is left alone.
  bool cancel(RequestId id);
  // Removes all such requests, and returns them.
  std::vector<RequestId> cancel_waiting();
  // Returns the batch to run now, if there is one. The latency limit of its oldest request bounds
  // the number of rows. A request that could not meet the limit alone is refused.
  std::optional<Batch> next(TimeNs now);
  // Reports the result of the batch that next() returned.
  void complete(bool succeeded, TimeNs now);
  // Returns the accepted requests that finished, failed or were then refused since the last call,
  // each exactly once.
  std::vector<BatchOutcome> take_outcomes();
  // Returns when next() will have a batch. Call it after next() returned none while the function
  // was idle.
  std::optional<TimeNs> next_timer() const;
  const BatcherCounters& counters() const { return counters_; }

 private:
  struct Waiting {
    RequestId id = 0;
    TimeNs arrived = 0;
  };
  struct Group {
    std::deque<Waiting> waiting{};
    CostModel cost{};
    bool is_measured = false;
    // A refused shape is no longer measured, although its batch may have been slow by accident. So
    // one request is tried after one refusal, then after two, four and so on.
    bool is_on_trial = false;
    Index refused = 0, refusals_before_trial = 1;

    bool start_trial();
  };
  struct Running {
    Batch batch{};
    TimeNs started = 0;
  };

  static std::int64_t service_ns(const Group& group, Index rows);
  std::int64_t service_ns(const Batch& batch) const;
  bool has_limit() const { return options_.latency_limit_ns > 0; }
  bool is_full() const { return counters_.waiting >= options_.max_queue; }
  TimeNs leave_time(const Group& group) const;
  std::int64_t work_ahead(TimeNs now) const;
  void refuse_late(Group& group, TimeNs now);
  Batch take(std::uint64_t shape, Group& group, TimeNs now);
  Batch start(Batch batch, TimeNs now);
  void forget_idle_shapes();
  void decide(RequestId id, BatchOutcome::Kind kind);

  BatcherOptions options_;
  std::map<std::uint64_t, Group> groups_;  // by shape
  std::optional<Running> running_;
  std::deque<Batch> retries_;  // single rows of batches that failed
  std::vector<BatchOutcome> outcomes_;
  BatcherCounters counters_;
};

}  // namespace hone
