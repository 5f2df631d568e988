// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "hone/core/batch/batcher.h"
#include "hone/core/error.h"
#include "hone/core/machine/clock.h"
#include "hone/train/surgery/evaluation_scope.h"
#include "hone/train/surgery/module_call.h"

// Runs single inputs from many threads through a module in batches.
namespace hone::nn {

struct ModuleServerOptions {
  Index max_batch = 8;
  double max_wait_ms = 5;  // how long an input waits for others to share its batch
  // Longest time from submit() to the result; 0: no limit. Inputs that cannot meet it are refused,
  // by what earlier batches of their kind took (Batcher).
  double max_latency_ms = 0;
  Index max_queue = 1024;
  // Before the first batch of a shape, its first row runs alone: what the module cannot take alone
  // then never shares a batch with others, whose number could make it right.
  bool tests_shapes = false;
};

struct ModuleResult {
  torch::Tensor output;   // the row of the module's output, without gradient
  double latency_ms = 0;  // from submit() to the result
  Index batch = 0;        // inputs that ran together
};

// Error{Resource}: the queue is full, or the limit of the latency cannot be met.
class InputRefused : public Error {
 public:
  explicit InputRefused(BatchRefusal refusal);
  BatchRefusal refusal() const { return refusal_; }

 private:
  BatchRefusal refusal_;
};

// Called once for an input that was taken, on the thread that runs the module or cancels: with the
// result, or with what the forward pass threw, Error{Cancelled} or InputRefused. Must not throw.
using ModuleDone = std::function<void(ModuleResult result, const std::exception_ptr& error)>;

// The queue of a ModuleServer without its thread: the caller says when to run. The module computes
// in evaluation mode while the queue exists.
class ModuleQueue {
 public:
  ModuleQueue(ModuleCall module, const ModuleServerOptions& options, const Clock& clock);
  // Fails the inputs that still wait with Error{Cancelled}.
  ~ModuleQueue();
  ModuleQueue(const ModuleQueue&) = delete;
  ModuleQueue& operator=(const ModuleQueue&) = delete;

  // Adds an input, a sample without the dimension of the batch, unless it is refused. From any
  // thread. Throws Error{InvalidArgument} for an undefined tensor, and Error{Cancelled} after
  // close().
  struct Submitted {
    std::optional<BatchRefusal> refusal;
    std::future<ModuleResult> result;  // without a refusal
  };
  Submitted submit(torch::Tensor input);
  // Sets `id` to that of the input, for cancel().
  std::optional<BatchRefusal> submit(torch::Tensor input, ModuleDone done, RequestId* id = nullptr);
  // Runs the batch that is due, if there is one. One thread at a time.
  bool run_due();
  // From now on, takes no input, and batches do not wait to become full.
  void close();
  // From now on, batches do not wait to become full.
  void hurry();
  // Fail inputs that wait with Error{Cancelled}; those that run go on.
  void cancel(const std::vector<RequestId>& ids);
  void cancel_waiting();

  std::optional<TimeNs> next_timer() const;  // when run_due() will have a batch
  BatcherCounters counters() const;

 private:
  struct Pending {
    torch::Tensor input;
    ModuleDone done;
    TimeNs arrived = 0;
  };
  struct Ran {
    std::vector<torch::Tensor> outputs;  // a row for each input
    std::exception_ptr error;
  };

  // Removes inputs whose requests were cancelled.
  std::vector<ModuleDone> take(const std::vector<RequestId>& ids);
  Ran run(const std::vector<torch::Tensor>& inputs) const;
  // The same, after a test of a new shape.
  Ran run_tested(const std::vector<torch::Tensor>& inputs, std::uint64_t shape);
  // Takes the requests whose results are known; the calls tell them. `batch` and `ran` belong to
  // the last batch.
  std::vector<std::function<void()>> settle(const Batch& batch, const Ran& ran);

  ModuleCall module_;
  EvaluationScope evaluation_;
  const Clock& clock_;
  mutable std::mutex mutex_;  // of what follows
  Batcher batcher_;
  std::map<RequestId, Pending> pending_;
  RequestId next_id_ = 0;
  bool is_closed_ = false;
  const bool tests_shapes_;
  std::set<std::uint64_t> good_shapes_;  // of the thread that runs
};

// Batches the inputs that threads submit. Inputs of the same shape, type and device share a batch.
// An input whose forward pass throws fails alone: the others of its batch run again one by one.
class ModuleServer {
 public:
  explicit ModuleServer(ModuleCall module, const ModuleServerOptions& options = {},
                        const Clock& clock = steady_clock());
  ~ModuleServer();  // shutdown()
  ModuleServer(const ModuleServer&) = delete;
  ModuleServer& operator=(const ModuleServer&) = delete;

  // Returns the result of an input, or what its forward pass threw. Throws like
  // ModuleQueue::submit(), and InputRefused. A request that is refused later has that error in its
  // future.
  std::future<ModuleResult> submit(torch::Tensor input);
  // The same without a future. A request that is refused later has its error in the call.
  RequestId submit(torch::Tensor input, ModuleDone done);

  // The results of all inputs, in their order; waits where the queue is full. Throws what the first
  // input that fails throws, and Error{InvalidArgument} if the module itself calls it.
  struct Predictions {
    std::vector<torch::Tensor> outputs;
    std::vector<double> latencies_ms;  // of each
    double latency_ms = 0;             // of all
  };
  Predictions predict_batch(const std::vector<torch::Tensor>& inputs);

  // Takes no input from now on, runs all that wait, and ends the thread. From any thread; the
  // module may call it, too, but then it does not wait.
  void shutdown();
  // As those of ModuleQueue.
  void hurry();
  void cancel(const std::vector<RequestId>& ids) { queue_.cancel(ids); }
  void cancel_waiting() { queue_.cancel_waiting(); }
  BatcherCounters counters() const { return queue_.counters(); }

 private:
  void serve();
  void wake();

  const Clock& clock_;
  ModuleQueue queue_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_news_ = false, is_closed_ = false;
  std::mutex joining_;
  std::thread thread_;
  const std::thread::id thread_id_;
};

}  // namespace hone::nn
