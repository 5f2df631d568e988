// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/find_batch_size.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/text_format.h"
#include "hone/train/memory/abandoned_backward.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/trainer/probe_step.h"

namespace hone::trainer {
namespace {

// Runs trial steps, and undoes them when it is destroyed.
class Prober {
 public:
  Prober(Task& task, optim::MultiTensorOptimizer& optimizer,
         const std::vector<torch::Tensor>& sample, const BatchSearchOptions& options)
      : task_(task),
        optimizer_(optimizer),
        sample_(sample),
        options_(options),
        device_(task.weights().front().value.device()),
        meter_(device_) {
    const Index own = meter_.current() + uncounted_bytes(task, optimizer);
    snapshot_.emplace(task, optimizer);
    snapshot_bytes_ = meter_.current() + uncounted_bytes(task, optimizer) - own;
    Index budget = options.budget_bytes;
    if (budget == 0) budget = memory::free_bytes(device_) + own;
    search_.limit_bytes = static_cast<Index>(options.limit * static_cast<double>(budget));
  }
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;
  ~Prober() { snapshot_->restore(); }

  // Runs a first step, which creates the optimizer's state. Returns whether memory sufficed.
  bool make_state() { return try_step(options_.low).has_value(); }

  bool fits(Index size) {
    const std::optional<Index> peak = try_step(size);
    const bool fits = peak && *peak <= search_.limit_bytes;
    search_.probes.push_back({.size = size, .fits = fits, .peak_bytes = peak.value_or(0)});
    log_info(concat("batch of ", size, fits ? ": fits in " : ": does not fit in ",
                    format_bytes(search_.limit_bytes, ByteUnits::Binary),
                    peak ? concat(", peak ", format_bytes(*peak, ByteUnits::Binary)) : ""));
    return fits;
  }

  BatchSearch& search() { return search_; }

 private:
  // The peak in bytes; nothing if memory ran out.
  std::optional<Index> try_step(Index size) {
    try {
      const Index peak = peak_of_step(size);
      snapshot_->restore_weights();
      return peak;
    } catch (...) {
      snapshot_->restore_weights();
      if (!memory::is_out_of_memory(std::current_exception())) throw;
    }
    abandoned_.release();
    memory::release_caches();
    return std::nullopt;
  }

  Index peak_of_step(Index size) {
    // Excludes the snapshot, which does not exist in training.
    const Index uncounted = uncounted_bytes(task_, optimizer_) - snapshot_bytes_;
    hold_gradients(task_, options_.accumulates);
    meter_.reset_peak();
    {
      const memory::MemoryLimit limit(device_.is_cpu() ? search_.limit_bytes - uncounted
                                                       : std::numeric_limits<Index>::max());
      probe_step(task_, optimizer_, replicate(sample_, size), options_.probe);
    }
    return meter_.peak() + uncounted;
  }

  Task& task_;
  optim::MultiTensorOptimizer& optimizer_;
  const std::vector<torch::Tensor>& sample_;
  const BatchSearchOptions& options_;
  c10::Device device_;
  memory::DeviceMeter meter_;
  memory::AbandonedBackward abandoned_;
  std::optional<TrainingSnapshot> snapshot_;
  Index snapshot_bytes_ = 0;
  BatchSearch search_;
};

[[noreturn]] void fail_nothing_fits(Index low, Index limit_bytes) {
  fail(ErrorCategory::Resource, "find_batch_size",
       concat("A step on ", low, " samples does not fit in ",
              format_bytes(limit_bytes, ByteUnits::Binary), "."));
}

}  // namespace

BatchSearch find_batch_size(Task& task, optim::MultiTensorOptimizer& optimizer,
                            const std::vector<torch::Tensor>& sample,
                            const BatchSearchOptions& options) {
  HONE_CHECK(options.low >= 1 && options.low <= options.high, "find_batch_size", "1 <= low <= high",
             concat(options.low, ", ", options.high));
  HONE_CHECK(options.limit > 0 && options.limit <= 1, "find_batch_size",
             "a limit above 0 and at most 1", options.limit);
  HONE_CHECK(options.budget_bytes >= 0, "find_batch_size", "budget_bytes of at least 0",
             options.budget_bytes);
  HONE_CHECK(!sample.empty(), "find_batch_size", "a sample", "none");
  Prober prober(task, optimizer, sample, options);
  Index good = 0, bad = options.high + 1;  // the largest that fits, the smallest that does not
  if (!prober.make_state()) bad = options.low;
  Index next = std::clamp(options.start, options.low, options.high);
  while (bad > options.low && bad - good > 1) {
    (prober.fits(next) ? good : bad) = next;
    if (good == 0) {
      next = std::max(options.low, bad / 2);
    } else {
      next = bad > options.high ? std::min(options.high, 2 * good) : good + (bad - good) / 2;
    }
  }
  if (good == 0) fail_nothing_fits(options.low, prober.search().limit_bytes);
  prober.search().batch = good;
  prober.search().at_end = good == options.high;
  return std::move(prober.search());
}

}  // namespace hone::trainer
