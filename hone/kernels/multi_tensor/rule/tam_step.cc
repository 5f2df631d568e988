// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/kernels/multi_tensor/rule/tam.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"
#include "hone/kernels/multi_tensor/schedule/fused_step.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "tam_step";

TorqueSums sums_from(const double* sums) {
  return {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
}

class TAMStep final : public StepRule {
 public:
  TAMStep(const MultiTensorPlan& plan, std::span<const TAMGroup> groups, const TAMMethods& methods,
          bool limits_gradients)
      : plan_(plan),
        groups_(groups),
        methods_(methods),
        update_(choose_tam_update(plan.has_slot(Slot::SecondMoment))),
        tensors_(static_cast<std::size_t>(plan.tensors())) {
    const bool decay = std::any_of(groups.begin(), groups.end(), [](const TAMGroup& group) {
      return !group.decoupled && group.weight_decay > 0;
    });
    statistics_ = decay ? Statistics::TorqueWithDecay : Statistics::Torque;
    gather_row_ = choose_gather(statistics_, limits_gradients);
  }

  Statistics statistics() const override {
    for (Index i = 0; i < plan_.tensors(); ++i) {
      if (measures_sums(i)) return statistics_;
    }
    return Statistics::None;
  }
  bool needs_sums(Index tensor) const override { return measures_sums(tensor); }
  bool needs_all_sums() const override {
    return plan_.tensors() > 0 && scope_of(0) == TAMScope::Model && measures_sums(0);
  }

  void prepare_all(SumsOf sums_of, double grad_scale) override {
    Torque total;
    for (Index i = 0; i < plan_.tensors(); ++i) {
      total += effective_torque(sums_of(i), grad_scale, group_of(i));
    }
    const TAMGroup& group = groups_.front();
    model_correlation_ =
        next_correlation(group, *place_of(0), torque_cosine(total, group, CosineGuard::Clamp));
  }

  void prepare(Index tensor, const TorqueSums& sums, double grad_scale) override {
    const TAMGroup& group = group_of(tensor);
    double correlation = 0;
    if (scope_of(tensor) == TAMScope::Model) {
      correlation = model_correlation_;
    } else if (scope_of(tensor) == TAMScope::Tensor) {
      correlation =
          measures_sums(tensor) ? new_correlation(tensor, sums, grad_scale) : *place_of(tensor);
    }
    const Index t = plan_.step()[static_cast<std::size_t>(tensor)] + 1;
    tensors_[static_cast<std::size_t>(tensor)] = {correlation,
                                                  make_scalars(group, correlation, t, grad_scale)};
  }

  bool wants_whole_chunks(Index tensor) const override { return steps_rows(tensor); }
  bool takes_narrow_moments(Index tensor) const override { return !steps_rows(tensor); }

  void update(Index tensor, const ChunkOperands& chunk, bool dry_run) const override {
    if (steps_rows(tensor)) return update_rows(tensor, chunk, dry_run);
    update_(chunk, tensors_[static_cast<std::size_t>(tensor)].scalars);
  }

  void commit() override {
    for (Index i = 0; i < plan_.tensors(); ++i) {
      if (measures_sums(i)) *place_of(i) = tensors_[static_cast<std::size_t>(i)].correlation;
    }
  }
  Index temporary_bytes() const override {
    return static_cast<Index>(tensors_.size() * sizeof(TensorState));
  }

 private:
  struct TensorState {
    double correlation = 0;  // the new s
    TAMScalars scalars;
  };

  const TAMGroup& group_of(Index tensor) const { return groups_[plan_.tensor(tensor).group]; }
  const TAMMethod& method_of(Index tensor) const {
    return methods_
        .of_tensor[methods_.of_tensor.size() == 1 ? 0 : static_cast<std::size_t>(tensor)];
  }
  double* place_of(Index tensor) const {
    const bool model = scope_of(tensor) == TAMScope::Model;
    const std::size_t at = model ? 0 : static_cast<std::size_t>(tensor);
    return methods_.correlation.empty() ? &methods_.values[at] : methods_.correlation[at];
  }
  TAMScope scope_of(Index tensor) const { return method_of(tensor).scope; }
  // Whether each row is measured where it is stepped.
  bool steps_rows(Index tensor) const {
    return scope_of(tensor) == TAMScope::Row && !group_of(tensor).fixed_damping.has_value();
  }
  // Whether pass 1 measures this tensor.
  bool measures_sums(Index tensor) const {
    return scope_of(tensor) != TAMScope::Row && !group_of(tensor).fixed_damping.has_value();
  }

  double new_correlation(Index tensor, const TorqueSums& sums, double grad_scale) const {
    const TAMGroup& group = group_of(tensor);
    const Torque torque = effective_torque(sums, grad_scale, group);
    return next_correlation(
        group, *place_of(tensor),
        torque_cosine(torque, group, method_of(tensor).guard.value_or(group.guard)));
  }

  // The chunk holds whole rows; each is measured and stepped while it is in cache.
  void update_rows(Index tensor, const ChunkOperands& chunk, bool dry_run) const {
    const TensorState& own = tensors_[static_cast<std::size_t>(tensor)];
    const TAMGroup& group = group_of(tensor);
    const Index length = method_of(tensor).row_length;
    const double grad_scale = std::abs(static_cast<double>(own.scalars.grad_scale));
    const auto raw_limit = static_cast<float>(chunk.grad_limit / grad_scale);
    double* s = place_of(tensor) + chunk.offset / length;
    const auto at = [](float* slot, Index i) { return slot == nullptr ? nullptr : slot + i; };
    const Index t = plan_.step()[static_cast<std::size_t>(tensor)] + 1;
    TAMScalars scalars = own.scalars;
    for (Index i = 0; i < chunk.length; i += length, ++s) {
      ChunkOperands row{at(chunk.param, i),
                        at(chunk.grad, i),
                        at(chunk.momentum, i),
                        at(chunk.second_moment, i),
                        nullptr,
                        length,
                        chunk.offset + i};
      double sums[6] = {};
      row.grad_limit = raw_limit;
      gather_row_(row, sums);
      row.grad_limit = chunk.grad_limit;
      const Torque torque = effective_torque(sums_from(sums), grad_scale, group);
      const double correlation =
          next_correlation(group, *s, torque_cosine(torque, group, CosineGuard::Clamp));
      if (!dry_run) *s = correlation;
      scalars.grad_share = make_scalars(group, correlation, t, grad_scale).grad_share;
      update_(row, scalars);
    }
  }

  const MultiTensorPlan& plan_;
  std::span<const TAMGroup> groups_;
  const TAMMethods& methods_;
  UpdateTAMChunk update_;
  Statistics statistics_ = Statistics::Torque;
  GatherChunk gather_row_ = nullptr;
  std::vector<TensorState> tensors_;
  double model_correlation_ = 0;
};

void check_method(const MultiTensorPlan& plan, const TAMMethods& methods, Index i) {
  const TAMMethod& method =
      methods.of_tensor[methods.of_tensor.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  const bool model = methods.of_tensor.front().scope == TAMScope::Model;
  HONE_CHECK((method.scope == TAMScope::Model) == model, kOp, "scope Model for all tensors or none",
             concat("both, at tensor ", i));
  const MultiTensorPlan::Tensor& tensor = plan.tensor(i);
  if (method.scope != TAMScope::Row || tensor.elements == 0) return;
  const bool divides = method.row_length > 0 && tensor.elements % method.row_length == 0;
  HONE_CHECK(divides, kOp, concat("a row length that divides ", tensor.elements, " for tensor ", i),
             method.row_length);
  HONE_CHECK(tensor.row_length == method.row_length, kOp,
             concat("a plan with rows of ", method.row_length, " for tensor ", i),
             tensor.row_length);
  HONE_CHECK(!methods.correlation.empty(), kOp, concat("one correlation per row of tensor ", i),
             "one per tensor");
}

}  // namespace

StepReport tam_step(const MultiTensorPlan& plan, std::span<const TAMGroup> groups,
                    const TAMMethods& methods, const StepControl& control, Executor& executor) {
  for (const TAMGroup& group : groups) check_group(kOp, group);
  check_group_numbers(kOp, plan, groups.size());
  check_slot(kOp, plan, Slot::Momentum, "momentum", true);
  const bool corrects = std::any_of(groups.begin(), groups.end(),
                                    [](const TAMGroup& group) { return group.bias_correction; });
  HONE_CHECK(!corrects || plan.tensors() == 0 || plan.has_slot(Slot::SecondMoment), kOp,
             "a second_moment list with bias_correction", "none");
  const auto tensors = static_cast<std::size_t>(plan.tensors());
  HONE_CHECK(methods.of_tensor.size() == tensors || methods.of_tensor.size() == 1, kOp,
             concat(tensors, " methods or 1"), methods.of_tensor.size());
  const bool model =
      !methods.of_tensor.empty() && methods.of_tensor.front().scope == TAMScope::Model;
  const std::size_t wanted = model && methods.correlation.empty() ? 1 : tensors;
  const std::size_t given =
      methods.correlation.empty() ? methods.values.size() : methods.correlation.size();
  HONE_CHECK(given == wanted, kOp, concat(wanted, " correlation values"), given);
  check_slot(kOp, plan, Slot::Extra, "extra", false);
  for (Index i = 0; i < plan.tensors(); ++i) check_method(plan, methods, i);
  TAMStep rule(plan, groups, methods, control.clip_value > 0);
  return run_fused_step(plan, rule, control, executor);
}

}  // namespace hone::kernels
