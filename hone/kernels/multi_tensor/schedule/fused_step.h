// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/function_ref.h"
#include "hone/core/thread/executor.h"
#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/schedule/statistics.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// A rule as the two passes use it; one object per call. To add a rule, implement this interface.
class StepRule {
 public:
  using SumsOf = FunctionRef<TorqueSums(Index tensor)>;

  virtual ~StepRule() = default;

  // Returns the statistics that the rule itself needs from pass 1.
  virtual Statistics statistics() const { return Statistics::None; }
  // Returns true if this tensor's sums must be known when prepare() is called for it.
  virtual bool needs_sums(Index /*tensor*/) const { return true; }
  // Returns true if a tensor's update depends on the sums of all tensors.
  virtual bool needs_all_sums() const { return false; }
  // Called before any prepare() if needs_all_sums().
  virtual void prepare_all(SumsOf /*sums_of*/, double /*grad_scale*/) {}
  // Computes the scalars of one tensor; grad_scale unscales and clips. Several workers may call it
  // for different tensors.
  virtual void prepare(Index tensor, const TorqueSums& sums, double grad_scale) = 0;
  // Returns true if update() must get a chunk, which then has whole rows, in one piece.
  virtual bool wants_whole_chunks(Index /*tensor*/) const { return false; }
  // Returns true if update() accepts a chunk with narrow moments (ChunkOperands::narrow). Otherwise
  // it gets copies in f32.
  virtual bool takes_narrow_moments(Index /*tensor*/) const { return false; }
  // Runs pass 2 on one chunk, after prepare(tensor). In a dry run, the operands are copies that are
  // then discarded.
  virtual void update(Index tensor, const ChunkOperands& chunk, bool dry_run) const = 0;
  // Called after the step was made: keeps the results of prepare().
  virtual void commit() {}
  // Returns the bytes that the object allocated for this call.
  virtual Index temporary_bytes() const = 0;
};

// Runs the passes that `control` and the rule need, then advances the step counters.
//   neither clip, finite check nor rule needs sums     pass 2 alone
//   only the rule needs them, tensor by tensor         both passes while a tensor is in cache
//   otherwise                                          pass 1 over everything, scalars, pass 2
// Sums are stored per chunk and added in index order: the same bits for any number of workers.
StepReport run_fused_step(const MultiTensorPlan& plan, StepRule& rule, const StepControl& control,
                          Executor& executor);

}  // namespace hone::kernels
