// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/generation.h"

#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::server {
namespace {

ApiError error_of(const infer::Event& event) {
  if (event.refusal) {
    return to_api_error(std::make_exception_ptr(
        infer::RefusedError(*event.refusal, event.error_category, event.error)));
  }
  if (event.error_category == ErrorCategory::Internal) log_error(event.error);
  return to_api_error(std::make_exception_ptr(Error(event.error_category, event.error)));
}

// Whether a text failed for a reason that the next one may meet as well.
bool is_own_failure(const infer::Event& event) {
  const ErrorCategory category = event.error_category;
  return !event.refusal && (category == ErrorCategory::Internal || category == ErrorCategory::Io ||
                            category == ErrorCategory::CorruptFile);
}

}  // namespace

// Keeps the generation alive until its last event.
class Generation::Sink final : public infer::EventSink {
 public:
  Sink(std::shared_ptr<Generation> generation, std::size_t choice)
      : generation_(std::move(generation)), choice_(choice) {}
  bool try_push(infer::Event&& event) noexcept override {
    const bool is_last = event.finished.has_value();
    try {
      generation_->push(choice_, event);
    } catch (const std::bad_alloc&) {
      return false;  // the engine offers it again
    }
    if (is_last) generation_.reset();
    return true;
  }

 private:
  std::shared_ptr<Generation> generation_;
  const std::size_t choice_;
};

void Generation::start(std::vector<infer::Request> requests) {
  {
    const std::scoped_lock lock(mutex_);
    started_ = last_event_ = service_.clock().now_ns();
    last_token_.resize(requests.size());
    open_ = requests.size();
    std::vector<std::shared_ptr<infer::EventSink>> sinks;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      sinks.push_back(std::make_shared<Sink>(shared_from_this(), i));
    }
    ids_ = service_.engine().submit(std::move(requests), sinks);
    service_.enter(shared_from_this());
  }
  // Cancels at once if the client has gone, and so not under the lock.
  const std::weak_ptr<Generation> weak = weak_from_this();
  exchange_->on_close([weak] {
    if (const auto self = weak.lock()) self->cancel();
  });
}

void Generation::start(infer::Request request) {
  std::vector<infer::Request> one;
  one.push_back(std::move(request));
  start(std::move(one));
}

// On the thread of the engine.
void Generation::push(std::size_t choice, const infer::Event& event) {
  const std::scoped_lock lock(inbox_mutex_);
  inbox_.emplace_back(choice, event);
  if (!std::exchange(is_dirty_, true)) service_.add_dirty(shared_from_this());
}

void Generation::drain() {
  const std::scoped_lock lock(mutex_);
  std::vector<std::pair<std::size_t, infer::Event>> events;
  {
    const std::scoped_lock inbox_lock(inbox_mutex_);
    events.swap(inbox_);
    is_dirty_ = false;
  }
  for (const auto& [choice, event] : events) take(choice, event);
}

void Generation::take(std::size_t choice, const infer::Event& event) {
  const TimeNs now = service_.clock().now_ns();
  last_event_ = now;
  TextMetrics& metrics = service_.metrics();
  if (event.token) {
    TimeNs& last = last_token_[choice];
    if (last == 0) {
      metrics.time_to_first_token.observe(seconds_between(started_, now));
    } else {
      metrics.inter_token.observe(seconds_between(last, now));
    }
    last = now;
  }
  if (event.finished) {
    --open_;
    metrics.note_end(*event.finished, event.timings, seconds_between(started_, now));
    metrics.note_health(*event.finished != infer::FinishReason::Failed || !is_own_failure(event));
  }
  if (!has_failed_) {
    if (event.finished == infer::FinishReason::Failed) {
      fail(error_of(event));
    } else if (!answer_->on_event(choice, event)) {
      has_failed_ = true;
      exchange_->end_stream(false);
      for (const RequestId id : ids_) service_.engine().cancel(id);
    } else if (open_ == 0) {
      answer_->on_end();
    }
  }
  if (open_ == 0) service_.leave(this);
}

void Generation::fail(const ApiError& error) {
  has_failed_ = true;
  ApiError told = error;
  if (told.retry_after_s > 0) told.retry_after_s = service_.retry_after_s();
  answer_->on_error(told);
  for (const RequestId id : ids_) service_.engine().cancel(id);
}

void Generation::cancel() {
  const std::scoped_lock lock(mutex_);
  for (const RequestId id : ids_) service_.engine().cancel(id);
}

void Generation::ping(double seconds) {
  const std::scoped_lock lock(mutex_);
  const TimeNs now = service_.clock().now_ns();
  if (has_failed_ || open_ == 0 || seconds_between(last_event_, now) < seconds) return;
  last_event_ = now;
  answer_->on_silence();
}

}  // namespace hone::server
