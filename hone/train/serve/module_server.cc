// SPDX-License-Identifier: Apache-2.0
#include "hone/train/serve/module_server.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "hone/core/check.h"
#include "hone/train/device.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr std::string_view kServer = "ModuleServer";

std::int64_t to_ns(double ms) { return static_cast<std::int64_t>(ms * 1e6); }

BatcherOptions batcher_options(const ModuleServerOptions& options) {
  constexpr double kMostMs = 1e9;
  HONE_CHECK(options.max_wait_ms >= 0 && options.max_wait_ms <= kMostMs, kServer,
             "max_wait_ms of 0 to 1e9", options.max_wait_ms);
  HONE_CHECK(options.max_latency_ms >= 0 && options.max_latency_ms <= kMostMs, kServer,
             "max_latency_ms of 0 to 1e9", options.max_latency_ms);
  return {.max_batch = options.max_batch,
          .max_wait_ns = to_ns(options.max_wait_ms),
          .latency_limit_ns = to_ns(options.max_latency_ms),
          .max_queue = options.max_queue};
}

// The key of inputs that can be stacked. Two kinds with one key would fail together, and then run
// one by one.
std::uint64_t shape_key(const Tensor& input) {
  std::size_t seed = c10::get_hash(static_cast<int>(input.scalar_type()), input.device());
  for (const std::int64_t size : input.sizes()) seed = c10::hash_combine(seed, c10::get_hash(size));
  return seed;
}

std::string refusal_text(BatchRefusal refusal) {
  return refusal == BatchRefusal::QueueFull
             ? concat('[', kServer, "] The queue is full (queue_full).")
             : concat('[', kServer,
                      "] The result would take longer than max_latency_ms (latency_limit).");
}

Error cancelled_error() {
  return Error(ErrorCategory::Cancelled, concat('[', kServer, "] The server was shut down."));
}

}  // namespace

InputRefused::InputRefused(BatchRefusal refusal)
    : Error(ErrorCategory::Resource, refusal_text(refusal)), refusal_(refusal) {}

ModuleQueue::ModuleQueue(ModuleCall module, const ModuleServerOptions& options, const Clock& clock)
    : module_(std::move(module)),
      evaluation_(module_.module()),
      clock_(clock),
      batcher_(batcher_options(options)),
      tests_shapes_(options.tests_shapes) {}

ModuleQueue::~ModuleQueue() {
  for (auto& [id, request] : pending_) request.done({}, std::make_exception_ptr(cancelled_error()));
}

std::optional<BatchRefusal> ModuleQueue::submit(Tensor input, ModuleDone done, RequestId* given) {
  HONE_REQUIRE(input.defined(), kServer, "The input is undefined.");
  const std::uint64_t shape = shape_key(input);
  const std::scoped_lock lock(mutex_);
  if (is_closed_) throw cancelled_error();
  const RequestId id = next_id_++;
  const TimeNs now = clock_.now_ns();
  if (const auto refusal = batcher_.submit(id, shape, now)) return refusal;
  pending_[id] = {std::move(input), std::move(done), now};
  if (given != nullptr) *given = id;
  return std::nullopt;
}

ModuleQueue::Submitted ModuleQueue::submit(Tensor input) {
  auto promise = std::make_shared<std::promise<ModuleResult>>();
  Submitted out;
  out.result = promise->get_future();
  out.refusal = submit(std::move(input), [promise](ModuleResult result, const auto& error) {
    if (error) {
      promise->set_exception(error);
    } else {
      promise->set_value(std::move(result));
    }
  });
  return out;
}

bool ModuleQueue::run_due() {
  std::optional<Batch> batch;
  std::vector<Tensor> inputs;
  std::vector<std::function<void()>> calls;
  {
    const std::scoped_lock lock(mutex_);
    batch = batcher_.next(clock_.now_ns());
    if (batch) {
      for (const RequestId id : batch->rows) inputs.push_back(pending_.at(id).input);
    } else {
      calls = settle({}, {});
    }
  }
  if (batch) {
    const Ran ran = run_tested(inputs, batch->shape);
    const std::scoped_lock lock(mutex_);
    batcher_.complete(ran.error == nullptr, clock_.now_ns());
    calls = settle(*batch, ran);
  }
  for (const std::function<void()>& call : calls) call();
  return batch.has_value();
}

// If the first row fails alone, so does the batch, and then its rows run one by one.
ModuleQueue::Ran ModuleQueue::run_tested(const std::vector<Tensor>& inputs, std::uint64_t shape) {
  constexpr std::size_t kMostShapes = 1024;
  const bool is_new = tests_shapes_ && !good_shapes_.contains(shape);
  if (is_new && inputs.size() > 1) {
    Ran alone = run({inputs.front()});
    if (alone.error) return alone;
  }
  Ran ran = run(inputs);
  if (is_new && !ran.error && good_shapes_.size() < kMostShapes) good_shapes_.insert(shape);
  return ran;
}

ModuleQueue::Ran ModuleQueue::run(const std::vector<Tensor>& inputs) const {
  Ran out;
  try {
    const at::NoGradGuard no_grad;
    const Tensor y = module_(at::stack(inputs));
    const auto rows = static_cast<std::int64_t>(inputs.size());
    HONE_CHECK(y.defined() && y.dim() >= 1 && y.size(0) == rows, kServer,
               concat("an output of ", rows, " rows"),
               y.defined() ? c10::str(y.sizes()) : "an undefined tensor");
    synchronize(y.device());
    // A copy of each: a row that is kept does not keep the batch, and is no view of an input.
    for (const Tensor& row : y.unbind(0)) out.outputs.push_back(row.clone());
  } catch (...) {
    out.error = std::current_exception();
    out.outputs.clear();
  }
  return out;
}

std::vector<std::function<void()>> ModuleQueue::settle(const Batch& batch, const Ran& ran) {
  const TimeNs now = clock_.now_ns();
  std::vector<std::function<void()>> calls;
  for (const BatchOutcome& outcome : batcher_.take_outcomes()) {
    auto node = pending_.extract(outcome.id);
    Pending& request = node.mapped();
    ModuleResult result;
    std::exception_ptr error;
    switch (outcome.kind) {
      case BatchOutcome::Kind::Refused:
        error = std::make_exception_ptr(InputRefused(BatchRefusal::LatencyLimit));
        break;
      case BatchOutcome::Kind::Failed:
        error = ran.error;
        break;
      case BatchOutcome::Kind::Finished: {
        const auto at = std::ranges::find(batch.rows, outcome.id) - batch.rows.begin();
        result = {.output = ran.outputs[static_cast<std::size_t>(at)],
                  .latency_ms = 1e3 * seconds_between(request.arrived, now),
                  .batch = std::ssize(batch.rows)};
      }
    }
    calls.emplace_back([done = std::move(request.done), result = std::move(result),
                        error = std::move(error)] { done(result, error); });
  }
  return calls;
}

void ModuleQueue::close() {
  const std::scoped_lock lock(mutex_);
  is_closed_ = true;
  batcher_.stop_waiting();
}

void ModuleQueue::hurry() {
  const std::scoped_lock lock(mutex_);
  batcher_.stop_waiting();
}

std::vector<ModuleDone> ModuleQueue::take(const std::vector<RequestId>& ids) {
  std::vector<ModuleDone> calls;
  for (const RequestId id : ids) calls.push_back(std::move(pending_.extract(id).mapped().done));
  return calls;
}

void ModuleQueue::cancel(const std::vector<RequestId>& ids) {
  std::vector<ModuleDone> calls;
  {
    const std::scoped_lock lock(mutex_);
    std::vector<RequestId> cancelled = ids;
    std::erase_if(cancelled, [this](RequestId id) { return !batcher_.cancel(id); });
    calls = take(cancelled);
  }
  for (const ModuleDone& done : calls) done({}, std::make_exception_ptr(cancelled_error()));
}

void ModuleQueue::cancel_waiting() {
  std::vector<ModuleDone> calls;
  {
    const std::scoped_lock lock(mutex_);
    calls = take(batcher_.cancel_waiting());
  }
  for (const ModuleDone& done : calls) done({}, std::make_exception_ptr(cancelled_error()));
}

std::optional<TimeNs> ModuleQueue::next_timer() const {
  const std::scoped_lock lock(mutex_);
  return batcher_.next_timer();
}

BatcherCounters ModuleQueue::counters() const {
  const std::scoped_lock lock(mutex_);
  return batcher_.counters();
}

ModuleServer::ModuleServer(ModuleCall module, const ModuleServerOptions& options,
                           const Clock& clock)
    : clock_(clock),
      queue_(std::move(module), options, clock),
      thread_([this] { serve(); }),
      thread_id_(thread_.get_id()) {}

ModuleServer::~ModuleServer() { shutdown(); }

void ModuleServer::wake() {
  {
    const std::scoped_lock lock(mutex_);
    has_news_ = true;
  }
  changed_.notify_one();
}

std::future<ModuleResult> ModuleServer::submit(Tensor input) {
  auto [refusal, result] = queue_.submit(std::move(input));
  if (refusal) throw InputRefused(*refusal);
  wake();
  return std::move(result);
}

RequestId ModuleServer::submit(Tensor input, ModuleDone done) {
  RequestId id = 0;
  if (const auto refusal = queue_.submit(std::move(input), std::move(done), &id)) {
    throw InputRefused(*refusal);
  }
  wake();
  return id;
}

void ModuleServer::hurry() {
  queue_.hurry();
  wake();
}

ModuleServer::Predictions ModuleServer::predict_batch(const std::vector<Tensor>& inputs) {
  constexpr std::chrono::milliseconds kPause(1);
  HONE_REQUIRE(std::this_thread::get_id() != thread_id_, kServer,
               "predict_batch() in the module would wait for itself.");
  const std::int64_t begin = clock_.now_ns();
  Predictions out;
  std::deque<std::future<ModuleResult>> waiting;
  const auto take = [&] {
    ModuleResult result = waiting.front().get();
    waiting.pop_front();
    out.outputs.push_back(std::move(result.output));
    out.latencies_ms.push_back(result.latency_ms);
  };
  for (const Tensor& input : inputs) {
    auto submitted = queue_.submit(input);
    while (submitted.refusal) {
      if (submitted.refusal == BatchRefusal::LatencyLimit) throw InputRefused(*submitted.refusal);
      if (waiting.empty()) {
        std::this_thread::sleep_for(kPause);  // others have filled the queue
      } else {
        take();
      }
      submitted = queue_.submit(input);
    }
    waiting.push_back(std::move(submitted.result));
    wake();
  }
  while (!waiting.empty()) take();
  out.latency_ms = 1e3 * seconds_between(begin, clock_.now_ns());
  return out;
}

void ModuleServer::shutdown() {
  queue_.close();
  {
    const std::scoped_lock lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_one();
  if (std::this_thread::get_id() == thread_id_) return;
  const std::scoped_lock lock(joining_);
  if (thread_.joinable()) thread_.join();
}

void ModuleServer::serve() {
  for (;;) {
    while (queue_.run_due()) {
    }
    std::unique_lock lock(mutex_);
    // The queue closes first, so that this sees every input that it has taken.
    const std::optional<TimeNs> timer = queue_.next_timer();
    if (is_closed_ && !timer) return;
    const auto is_awake = [&] { return has_news_ || is_closed_; };
    if (!timer) {
      changed_.wait(lock, is_awake);
    } else {
      const std::int64_t rest = std::max<std::int64_t>(0, *timer - clock_.now_ns());
      changed_.wait_for(lock, std::chrono::nanoseconds(rest), is_awake);
    }
    has_news_ = false;
  }
}

}  // namespace hone::nn
