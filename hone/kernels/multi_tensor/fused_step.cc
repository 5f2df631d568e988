// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/fused_step.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/trace.h"
#include "hone/kernels/multi_tensor/pass/strided_copy.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "multi_tensor step";

// Tensors that go through both passes together when no global norm is needed: their g and m
// (8 bytes per element, 8 MiB) stay in a common last-level cache between the passes.
constexpr Index kBatchElements = Index{1} << 20;

bool all_finite(const float* data, Index length) {
  // x - x is 0 for finite x and NaN otherwise.
  float sum = 0;
  for (Index i = 0; i < length; ++i) sum += data[i] - data[i];
  return sum == 0;
}

class FusedStep {
 public:
  FusedStep(const MultiTensorPlan& plan, StepRule& rule, const StepControl& control,
            Executor& executor)
      : plan_(plan), rule_(rule), control_(control), executor_(executor) {
    statistics_ = rule.statistics();
    if (statistics_ == Statistics::None && control.needs_global_norm()) {
      statistics_ = Statistics::Norm;
    }
    if (statistics_ != Statistics::None) gather_ = choose_gather(statistics_);
    sums_per_chunk_ = count_sums(statistics_);
    sums_.resize(static_cast<std::size_t>(plan.chunks() * sums_per_chunk_));
    if (plan.has_strided() || control.checked) {
      scratch_ = Buffer(executor.workers() * kSlots * kChunkElements * Index{sizeof(float)});
    }
  }

  StepReport run() {
    report_.temporary_bytes = static_cast<Index>(sums_.size() * sizeof(double)) + scratch_.bytes() +
                              rule_.temporary_bytes();
    const bool sums_first =
        control_.needs_global_norm() || rule_.needs_all_sums() || control_.checked;
    if (statistics_ == Statistics::None || sums_first) {
      step_in_two_sweeps();
    } else {
      step_while_in_cache();
    }
    if (report_.stepped) {
      rule_.commit();
      for (Index& counter : plan_.step()) ++counter;
    }
    return report_;
  }

 private:
  void step_in_two_sweeps() {
    if (statistics_ != Statistics::None) {
      for_each_chunk([&](Index c, int worker) { gather_chunk(c, worker); });
    }
    if (control_.needs_global_norm() && !measure_norm()) return;
    const double grad_scale = control_.inv_scale * report_.clip_coef;
    if (rule_.needs_all_sums()) {
      rule_.prepare_all([&](Index tensor) { return add_sums(tensor); }, grad_scale);
    }
    for (Index tensor = 0; tensor < plan_.tensors(); ++tensor) {
      rule_.prepare(tensor, add_sums(tensor), grad_scale);
    }
    if (control_.checked && !try_step()) return;
    for_each_chunk([&](Index c, int worker) { update_chunk(c, worker); });
  }

  // Whole tensors: both passes by one worker. Larger ones in batches, pass 1 then pass 2. Same
  // chunks, same order of additions as in two sweeps.
  void step_while_in_cache() {
    executor_.parallel_for(static_cast<Index>(plan_.units().size()), 1,
                           [&](Index begin, Index end, int worker) {
                             for (Index unit = begin; unit < end; ++unit) {
                               if (plan_.unit_is_whole(unit)) step_whole_tensors(unit, worker);
                             }
                           });
    const auto units = plan_.units();
    const auto count = static_cast<Index>(units.size());
    Index begin = 0, elements = 0;
    for (Index unit = 0; unit < count; ++unit) {
      if (plan_.unit_is_whole(unit)) continue;
      const Chunk& chunk = plan_.chunk_list()[units[static_cast<std::size_t>(unit)].begin];
      elements += chunk.length;
      const bool ends_tensor = chunk.offset + chunk.length == plan_.tensor(chunk.tensor).elements;
      if (ends_tensor && elements >= kBatchElements) {
        step_batch(begin, unit + 1);
        begin = unit + 1;
        elements = 0;
      }
    }
    if (elements > 0) step_batch(begin, count);
  }

  void step_whole_tensors(Index unit, int worker) {
    const ChunkUnit& range = plan_.units()[static_cast<std::size_t>(unit)];
    for (Index c = range.begin; c < range.end; ++c) {
      const Index tensor = plan_.chunk_list()[static_cast<std::size_t>(c)].tensor;
      prefetch(c, Slot::Param);
      gather_chunk(c, worker);
      rule_.prepare(tensor, add_sums(tensor), control_.inv_scale);
      prefetch(c + 2, Slot::Grad);
      prefetch(c + 2, Slot::Momentum);
      update_chunk(c, worker);
    }
  }

  // The hardware's prefetchers start anew with every tensor and stop at page borders: for small
  // tensors, most of whose time would be the wait for the first lines.
  void prefetch(Index c, Slot slot) const {
    constexpr Index kMostElements = 4096, kLineElements = kCacheLine / Index{sizeof(float)};
    if (c >= plan_.chunks()) return;
    const Chunk& chunk = plan_.chunk_list()[static_cast<std::size_t>(c)];
    const float* data = plan_.tensor(chunk.tensor).slot(slot);
    if (data == nullptr || is_strided(chunk)) return;
    const Index length = std::min(chunk.length, kMostElements);
    for (Index i = 0; i < length; i += kLineElements) __builtin_prefetch(data + chunk.offset + i);
  }

  // Units [begin, end) that are parts of larger tensors; each is one chunk.
  void step_batch(Index begin, Index end) {
    const auto for_each_part = [&](auto&& body) {
      executor_.parallel_for(end - begin, 1, [&](Index first, Index last, int worker) {
        for (Index unit = begin + first; unit < begin + last; ++unit) {
          if (plan_.unit_is_whole(unit)) continue;
          body(plan_.units()[static_cast<std::size_t>(unit)].begin, worker);
        }
      });
    };
    for_each_part([&](Index c, int worker) { gather_chunk(c, worker); });
    for (Index unit = begin; unit < end; ++unit) {
      if (plan_.unit_is_whole(unit)) continue;
      const Chunk& chunk = plan_.chunk_list()[plan_.units()[static_cast<std::size_t>(unit)].begin];
      if (chunk.offset > 0) continue;
      rule_.prepare(chunk.tensor, add_sums(chunk.tensor), control_.inv_scale);
    }
    for_each_part([&](Index c, int worker) { update_chunk(c, worker); });
  }

  template <class Body>
  void for_each_chunk(const Body& body) {
    executor_.parallel_for(
        static_cast<Index>(plan_.units().size()), 1, [&](Index begin, Index end, int worker) {
          for (Index unit = begin; unit < end; ++unit) {
            const ChunkUnit& range = plan_.units()[static_cast<std::size_t>(unit)];
            for (Index c = range.begin; c < range.end; ++c) body(c, worker);
          }
        });
  }

  // The chunk where it lies.
  ChunkOperands dense_operands(const Chunk& chunk) const {
    const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
    const auto at = [&](Slot slot) {
      float* data = tensor.slot(slot);
      return data == nullptr ? nullptr : data + chunk.offset;
    };
    return {at(Slot::Param),        at(Slot::Grad),  at(Slot::Momentum),
            at(Slot::SecondMoment), at(Slot::Extra), chunk.length};
  }

  // The chunk copied into this worker's scratch.
  ChunkOperands copy_to_scratch(const Chunk& chunk, int worker) const {
    const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
    float* slots[kSlots] = {};
    for (int s = 0; s < kSlots; ++s) {
      if (tensor.data[s] == nullptr) continue;
      slots[s] = scratch_.as<float>() + (worker * kSlots + s) * kChunkElements;
      if (tensor.strided >= 0) {
        copy_from_strided(plan_.strided(tensor).views[s], chunk.offset, chunk.length, slots[s]);
      } else {
        std::copy_n(tensor.data[s] + chunk.offset, chunk.length, slots[s]);
      }
    }
    return {slots[0], slots[1], slots[2], slots[3], slots[4], chunk.length};
  }

  void copy_back(const Chunk& chunk, const ChunkOperands& from) const {
    const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
    const float* slots[kSlots] = {from.param, from.grad, from.momentum, from.second_moment,
                                  from.extra};
    for (int s = 0; s < kSlots; ++s) {
      const bool unchanged =
          s == static_cast<int>(Slot::Grad) && control_.grad == GradWriteBack::None;
      if (slots[s] == nullptr || unchanged) continue;
      copy_to_strided(slots[s], plan_.strided(tensor).views[s], chunk.offset, chunk.length);
    }
  }

  bool is_strided(const Chunk& chunk) const { return plan_.tensor(chunk.tensor).strided >= 0; }

  void gather_chunk(Index c, int worker) {
    const Chunk& chunk = plan_.chunk_list()[static_cast<std::size_t>(c)];
    double* sums = sums_.data() + c * sums_per_chunk_;
    gather_(is_strided(chunk) ? copy_to_scratch(chunk, worker) : dense_operands(chunk), sums);
  }

  void update_chunk(Index c, int worker) {
    const Chunk& chunk = plan_.chunk_list()[static_cast<std::size_t>(c)];
    if (!is_strided(chunk)) return rule_.update(chunk.tensor, dense_operands(chunk));
    const ChunkOperands operands = copy_to_scratch(chunk, worker);
    rule_.update(chunk.tensor, operands);
    copy_back(chunk, operands);
  }

  // Sums of one tensor's chunks, in order.
  TorqueSums add_sums(Index tensor) const {
    double total[6] = {};
    const Index end = plan_.first_chunk(tensor + 1);
    for (Index c = plan_.first_chunk(tensor); c < end; ++c) {
      for (Index s = 0; s < sums_per_chunk_; ++s) total[s] += sums_[c * sums_per_chunk_ + s];
    }
    return {total[0], total[1], total[2], total[3], total[4], total[5]};
  }

  // Fills the report; false when the step must be skipped.
  bool measure_norm() {
    double total = 0;
    for (Index tensor = 0; tensor < plan_.tensors(); ++tensor) {
      const double gg = add_sums(tensor).gg;
      if (!std::isfinite(gg) && report_.first_nonfinite_tensor < 0) {
        report_.first_nonfinite_tensor = tensor;
      }
      total += gg;
    }
    report_.grad_norm = control_.inv_scale * std::sqrt(total);
    const bool must_be_finite = control_.skip_nonfinite || control_.inv_scale != 1;
    if (must_be_finite && report_.first_nonfinite_tensor >= 0) {
      report_.stepped = false;
      return false;
    }
    if (control_.clip_norm > 0) {
      const double coef = control_.clip_norm / (report_.grad_norm + 1e-6);
      report_.clip_coef = coef > 1 ? 1 : coef;  // NaN stays NaN, as in PyTorch
    }
    return true;
  }

  // Computes every new value without storing it. False when one is inf or NaN.
  bool try_step() {
    constexpr Index kNone = std::numeric_limits<Index>::max();
    std::atomic<Index> first_bad{kNone};
    for_each_chunk([&](Index c, int worker) {
      const Chunk& chunk = plan_.chunk_list()[static_cast<std::size_t>(c)];
      const ChunkOperands tried = copy_to_scratch(chunk, worker);
      rule_.update(chunk.tensor, tried);
      bool finite = true;
      for (const float* values : {tried.param, tried.momentum, tried.second_moment, tried.extra}) {
        finite = finite && (values == nullptr || all_finite(values, chunk.length));
      }
      if (finite) return;
      Index known = first_bad.load(std::memory_order_relaxed);
      while (chunk.tensor < known && !first_bad.compare_exchange_weak(known, chunk.tensor)) {
      }
    });
    if (first_bad == kNone) return true;
    report_.stepped = false;
    report_.first_nonfinite_tensor = first_bad;
    return false;
  }

  const MultiTensorPlan& plan_;
  StepRule& rule_;
  const StepControl& control_;
  Executor& executor_;
  Statistics statistics_ = Statistics::None;
  GatherChunk gather_ = nullptr;
  Index sums_per_chunk_ = 0;
  std::vector<double> sums_;  // [chunk][sums_per_chunk_]
  Buffer scratch_;            // [worker][slot][kChunkElements]
  StepReport report_;
};

}  // namespace

StepReport run_fused_step(const MultiTensorPlan& plan, StepRule& rule, const StepControl& control,
                          Executor& executor) {
  HONE_TRACE_ZONE("multi_tensor step");
  HONE_CHECK(std::isfinite(control.inv_scale) && control.inv_scale > 0, kOp,
             "a finite positive inv_scale", control.inv_scale);
  HONE_CHECK(control.clip_norm >= 0, kOp, "clip_norm of at least 0", control.clip_norm);
  if (control.grad != GradWriteBack::None) plan.check_gradients_writable();
  return FusedStep(plan, rule, control, executor).run();
}

}  // namespace hone::kernels
