// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/schedule/fused_step.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "hone/core/machine/trace.h"
#include "hone/kernels/multi_tensor/dispatch.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"
#include "hone/kernels/multi_tensor/schedule/chunk_sums.h"
#include "hone/kernels/multi_tensor/schedule/element_pass.h"
#include "hone/kernels/multi_tensor/schedule/grad_norm.h"
#include "hone/kernels/multi_tensor/schedule/staged_chunk.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "multi_tensor step";

// Tensors that go through both passes together when no global norm is needed: their g and m
// (8 bytes per element, 8 MiB) stay in a common last-level cache between the passes.
constexpr Index kBatchElements = Index{1} << 20;

// Slots to stage, from the first, where gradients alone are read.
constexpr int kNormSlots = static_cast<int>(Slot::Grad) + 1;

bool all_within(const float* data, Index length, float largest) {
  bool within = true;
  for (Index i = 0; i < length; ++i) within &= std::abs(data[i]) <= largest;
  return within;
}

// Whether the norm takes a sweep of its own, because the sums of pass 1 do not give it: they are
// of squares, and of limited gradients where the rule measures them.
bool sweeps_norm(const StepRule& rule, const StepControl& control) {
  return control.needs_global_norm() &&
         (control.norm_type != 2 ||
          (control.clip_value > 0 && rule.statistics() != Statistics::None));
}

Statistics statistics_of(const StepRule& rule, const StepControl& control) {
  const Statistics own = rule.statistics();
  const bool for_norm = control.needs_global_norm() && !sweeps_norm(rule, control);
  return own == Statistics::None && for_norm ? Statistics::Norm : own;
}

// The limit of raw gradients in the sums: a rule measures what it steps with, the norm is of all.
float sums_limit(const StepRule& rule, const StepControl& control) {
  return rule.statistics() == Statistics::None ? std::numeric_limits<float>::infinity()
                                               : control.grad_limit(control.inv_scale);
}

class FusedStep {
 public:
  FusedStep(const MultiTensorPlan& plan, StepRule& rule, const StepControl& control,
            Executor& executor)
      : plan_(plan),
        rule_(rule),
        control_(control),
        executor_(executor),
        stager_(plan, control, executor.workers(), control.checked),
        norm_(plan, control.norm_type, sweeps_norm(rule, control)),
        sums_(plan, statistics_of(rule, control), sums_limit(rule, control)) {}

  StepReport run() {
    report_.temporary_bytes =
        norm_.bytes() + sums_.bytes() + stager_.scratch_bytes() + rule_.temporary_bytes();
    const bool sums_first =
        control_.needs_global_norm() || rule_.needs_all_sums() || control_.checked;
    if (sums_first || !sums_.measures()) {
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
  const Chunk& chunk_at(Index c) const { return plan_.chunk_list()[static_cast<std::size_t>(c)]; }
  const ChunkUnit& unit_at(Index u) const { return plan_.units()[static_cast<std::size_t>(u)]; }

  template <class Body>
  void for_each_chunk(const Body& body) {
    executor_.parallel_for(static_cast<Index>(plan_.units().size()), 1,
                           [&](Index begin, Index end, int worker) {
                             for (Index u = begin; u < end; ++u) {
                               for (Index c = unit_at(u).begin; c < unit_at(u).end; ++c) {
                                 body(c, worker);
                               }
                             }
                           });
  }

  // ---- the order of the passes

  void step_in_two_sweeps() {
    if (norm_.measures()) {
      for_each_chunk([&](Index c, int worker) {
        const StagedChunk staged = stager_.stage(chunk_at(c), worker, /*all=*/false, kNormSlots);
        norm_.gather(c, staged.operands(chunk_at(c)));
      });
      if (!norm_.measure_norm(control_, report_)) return;
    }
    if (sums_.measures()) {
      for_each_chunk([&](Index c, int worker) { gather_chunk(c, worker); });
    }
    const bool norm_of_sums = control_.needs_global_norm() && !norm_.measures();
    if (norm_of_sums && !sums_.measure_norm(control_, report_)) return;
    const double grad_scale = control_.inv_scale * report_.clip_coef;
    if (rule_.needs_all_sums()) {
      rule_.prepare_all([&](Index tensor) { return sums_.of_tensor(tensor); }, grad_scale);
    }
    for (Index tensor = 0; tensor < plan_.tensors(); ++tensor) {
      rule_.prepare(tensor, sums_.of_tensor(tensor), grad_scale);
    }
    if (control_.checked && !dry_run()) return;
    for_each_chunk([&](Index c, int worker) { update_chunk(c, worker); });
  }

  // Whole tensors: both passes by one worker. Larger ones in batches, pass 1 then pass 2. Same
  // chunks, same order of additions as in two sweeps.
  void step_while_in_cache();

  void step_whole_tensors(const ChunkUnit& unit, int worker) {
    for (Index c = unit.begin; c < unit.end; ++c) {
      const Index tensor = chunk_at(c).tensor;
      if (rule_.needs_sums(tensor)) gather_chunk(c, worker);
      rule_.prepare(tensor, sums_.of_tensor(tensor), control_.inv_scale);
      update_chunk(c, worker);
    }
  }

  // Units [begin, end) that are parts of larger tensors; each is one chunk.
  void step_batch(Index begin, Index end) {
    const auto for_each_part = [&](auto&& body) {
      executor_.parallel_for(end - begin, 1, [&](Index first, Index last, int worker) {
        for (Index u = begin + first; u < begin + last; ++u) {
          if (!unit_at(u).whole) body(unit_at(u).begin, worker);
        }
      });
    };
    for_each_part([&](Index c, int worker) {
      if (rule_.needs_sums(chunk_at(c).tensor)) gather_chunk(c, worker);
    });
    for (Index u = begin; u < end; ++u) {
      const Chunk& chunk = chunk_at(unit_at(u).begin);
      if (unit_at(u).whole || chunk.offset > 0) continue;
      rule_.prepare(chunk.tensor, sums_.of_tensor(chunk.tensor), control_.inv_scale);
    }
    for_each_part([&](Index c, int worker) { update_chunk(c, worker); });
  }

  // ---- one chunk

  ChunkOperands operands_of(const Chunk& chunk, const StagedChunk& staged) const {
    ChunkOperands operands = staged.operands(chunk);
    operands.grad_limit = grad_limit_;
    return operands;
  }

  void gather_chunk(Index c, int worker) {
    const Chunk& chunk = chunk_at(c);
    const StagedChunk staged = stager_.stage(chunk, worker, /*all=*/false, sums_.slots());
    sums_.gather(c, staged.operands(chunk));
  }

  void update_chunk(Index c, int worker) {
    const Chunk& chunk = chunk_at(c);
    if (!stager_.is_indirect(chunk)) return update_staged(chunk, stager_.in_place(chunk));
    const Index done = update_narrow_moments(chunk);
    const Index end = chunk.offset + chunk.length;
    const bool whole = rule_.wants_whole_chunks(chunk.tensor);
    const Index step = whole ? chunk.length : ChunkStager::kPiece;
    for (Index offset = chunk.offset + done; offset < end; offset += step) {
      const Chunk piece{chunk.tensor, offset, std::min(step, end - offset)};
      const StagedChunk copy = stager_.stage(piece, worker, /*all=*/false);
      stager_.prefetch_behind(piece);
      update_staged(piece, copy);
      stager_.write_back(piece, copy);
    }
  }

  void update_staged(const Chunk& chunk, const StagedChunk& staged) const {
    const ChunkOperands operands = operands_of(chunk, staged);
    rule_.update(chunk.tensor, operands, /*dry_run=*/false);
    finish_chunk(chunk, operands, staged.average());
  }

  // Steps the whole blocks of a chunk whose moments are narrow and everything else f32; returns how
  // many elements these are.
  Index update_narrow_moments(const Chunk& chunk) const {
    const MultiTensorPlan::Tensor& tensor = plan_.tensor(chunk.tensor);
    const Chunk blocks{chunk.tensor, chunk.offset, chunk.length / kCodeBlock * kCodeBlock};
    if (!has_vector_loops_ || !rule_.takes_narrow_moments(chunk.tensor) ||
        !plan_.indirect(tensor).only_moments || blocks.length == 0) {
      return 0;
    }
    const NarrowMoments moments = stager_.narrow_moments(blocks);
    const StagedChunk staged = stager_.in_place(blocks);
    ChunkOperands operands = operands_of(blocks, staged);
    operands.momentum = operands.second_moment = nullptr;
    operands.narrow = &moments;
    rule_.update(blocks.tensor, operands, /*dry_run=*/false);
    finish_chunk(blocks, operands, staged.average());
    return blocks.length;
  }

  // Gradient write-back, moving average and the low-precision copy of the new parameter.
  void finish_chunk(const Chunk& chunk, const ChunkOperands& operands, float* average) const {
    if (control_.grad == GradWriteBack::Zero) std::fill_n(operands.grad, chunk.length, 0.0f);
    if (control_.grad == GradWriteBack::Unscaled) {
      const ElementPiece grad{.out = operands.grad, .x = operands.grad, .length = chunk.length};
      pass_.scale(grad, static_cast<float>(control_.inv_scale * report_.clip_coef));
      if (control_.clip_value > 0) pass_.clamp(grad, -grad_limit_, grad_limit_);
    }
    if (average != nullptr) {
      pass_.average({average, operands.param, average, chunk.length},
                    static_cast<float>(1 - control_.ema_decay));
    }
    stager_.store_copy(chunk, operands.param);
  }

  // Computes every new value without storing it. False when one is inf or NaN.
  bool dry_run();

  const MultiTensorPlan& plan_;
  StepRule& rule_;
  const StepControl& control_;
  Executor& executor_;
  ChunkStager stager_;
  NormSweep norm_;
  ChunkSums sums_;
  const float grad_limit_ = control_.grad_limit();
  const bool has_vector_loops_ = !wants_reference();
  ElementPass pass_ = choose_element_pass();
  StepReport report_;
};

bool FusedStep::dry_run() {
  constexpr Index kNone = std::numeric_limits<Index>::max();
  std::atomic<Index> first_bad{kNone};
  for_each_chunk([&](Index c, int worker) {
    const Chunk& chunk = chunk_at(c);
    const StagedChunk copy = stager_.stage(chunk, worker, /*all=*/true);
    rule_.update(chunk.tensor, operands_of(chunk, copy), /*dry_run=*/true);
    bool finite = true;
    for (const Slot slot : {Slot::Param, Slot::Momentum, Slot::SecondMoment, Slot::Extra}) {
      const float* values = copy.slots[static_cast<int>(slot)];
      finite = finite && (values == nullptr ||
                          all_within(values, chunk.length, stager_.largest_stored(chunk, slot)));
    }
    if (finite) return;
    Index known = first_bad.load(std::memory_order_relaxed);
    while (chunk.tensor < known && !first_bad.compare_exchange_weak(known, chunk.tensor)) {
    }
  });
  if (first_bad == kNone) return true;
  report_.stepped = false;
  report_.stopped_by_check = true;
  // A gradient that is not finite spreads through the norm: it was found before.
  if (report_.first_nonfinite_tensor < 0) report_.first_nonfinite_tensor = first_bad;
  return false;
}

void FusedStep::step_while_in_cache() {
  const auto count = static_cast<Index>(plan_.units().size());
  executor_.parallel_for(count, 1, [&](Index begin, Index end, int worker) {
    for (Index u = begin; u < end; ++u) {
      if (unit_at(u).whole) step_whole_tensors(unit_at(u), worker);
    }
  });
  Index begin = 0, elements = 0;
  for (Index u = 0; u < count; ++u) {
    if (unit_at(u).whole) continue;
    const Chunk& chunk = chunk_at(unit_at(u).begin);
    elements += chunk.length;
    const bool ends_tensor = chunk.offset + chunk.length == plan_.tensor(chunk.tensor).elements;
    if (ends_tensor && elements >= kBatchElements) {
      step_batch(begin, u + 1);
      begin = u + 1;
      elements = 0;
    }
  }
  if (elements > 0) step_batch(begin, count);
}

}  // namespace

StepReport run_fused_step(const MultiTensorPlan& plan, StepRule& rule, const StepControl& control,
                          Executor& executor) {
  HONE_TRACE_ZONE("multi_tensor step");
  check_step_control(kOp, control);
  if (control.grad != GradWriteBack::None) plan.check_gradients_writable();
  return FusedStep(plan, rule, control, executor).run();
}

}  // namespace hone::kernels
