// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/train/optim/rule_optimizer.h"
#include "hone/train/optim/sgd.h"

namespace hone::optim {

// The factor r for a matrix rows x cols, which makes rates comparable between shapes.
enum class MuonAdjust {
  Original,       // sqrt(max(1, rows / cols))
  MatchRmsAdamW,  // 0.2 sqrt(max(rows, cols)): updates of AdamW's size
};
constexpr auto names_of(MuonAdjust) {
  return std::to_array<std::string_view>({"original", "match_rms_adamw"});
}

// Names and defaults are those of torch.optim.Muon; adjust_lr is its adjust_lr_fn. Weight decay is
// decoupled.
struct MuonOptions : PlainOptions<MuonOptions> {
  using Coefficients = std::tuple<double, double, double>;

  MuonOptions() = default;
  MuonOptions(double value) { lr(value); }  // NOLINT: as LibTorch's options

  MuonOptions& lr(double value) { return set(lr_, value); }
  MuonOptions& momentum(double value) { return set(momentum_, value); }
  MuonOptions& weight_decay(double value) { return set(weight_decay_, value); }
  MuonOptions& nesterov(bool value) { return set(nesterov_, value); }
  MuonOptions& ns_coefficients(Coefficients value) { return set(ns_coefficients_, value); }
  MuonOptions& ns_steps(std::int64_t value) { return set(ns_steps_, value); }
  MuonOptions& eps(double value) { return set(eps_, value); }
  MuonOptions& adjust_lr(MuonAdjust value) { return set(adjust_lr_, value); }
  // true: products in bf16, as in torch.optim.Muon; false: fp32.
  MuonOptions& bf16_iteration(bool value) { return set(bf16_iteration_, value); }
  // true: the group's parameters, of any shape, take Lion's update instead, with `momentum` as both
  // betas. Use it for embeddings, output matrices and vectors beside the matrices of hidden layers.
  MuonOptions& sign_update(bool value) { return set(sign_update_, value); }
  double lr() const { return lr_; }
  double momentum() const { return momentum_; }
  double weight_decay() const { return weight_decay_; }
  bool nesterov() const { return nesterov_; }
  const Coefficients& ns_coefficients() const { return ns_coefficients_; }
  std::int64_t ns_steps() const { return ns_steps_; }
  double eps() const { return eps_; }
  MuonAdjust adjust_lr() const { return adjust_lr_; }
  bool bf16_iteration() const { return bf16_iteration_; }
  bool sign_update() const { return sign_update_; }

  using PlainOptions::serialize;
  void serialize(torch::serialize::InputArchive& archive) override;

  template <class Self, class Visit>
  static void visit_fields(Self& self, const Visit& visit) {
    visit("lr", self.lr_);
    visit("momentum", self.momentum_);
    visit("weight_decay", self.weight_decay_);
    visit("nesterov", self.nesterov_);
    visit("ns_coefficients", self.ns_coefficients_);
    visit("ns_steps", self.ns_steps_);
    visit("eps", self.eps_);
    visit("adjust_lr_fn", self.adjust_lr_);
    visit("bf16_iteration", self.bf16_iteration_);
    visit("sign_update", self.sign_update_);
    visit_added(self, visit);
  }

 private:
  double lr_ = 1e-3;
  double momentum_ = 0.95;
  double weight_decay_ = 0.1;
  bool nesterov_ = true;
  Coefficients ns_coefficients_ = {3.4445, -4.775, 2.0315};
  std::int64_t ns_steps_ = 5;
  double eps_ = 1e-7;
  MuonAdjust adjust_lr_ = MuonAdjust::Original;
  bool bf16_iteration_ = false;
  bool sign_update_ = false;
};

// A suitable rate for sign_update, as a share of the rate for MatchRmsAdamW. The root mean square
// of signs is 1, and that of AdamW's updates is about 0.2.
inline constexpr double kSignRate = 0.1;

struct MuonParamState : AddedState<MuonParamState, CountedSGDState> {};

// Returns the number of floats that the update of one matrix uses temporarily.
Index muon_workspace(Index rows, Index cols);

// ---- the rule for RuleOptimizer. Lion's kernel steps the momentum at rate 0.

struct MuonRule {
  static constexpr const char* kName = "Muon";
  static constexpr bool kDecoupledDecay = true;
  static constexpr StateNames kStateNames{"momentum_buffer", "", ""};
  static constexpr auto kStep = kernels::lion_step;
  using Options = MuonOptions;
  using GivenOptions = MuonOptions;
  using State = MuonParamState;
  using Group = kernels::LionGroup;

  static Group group_of(const Options& options);
  static StateFields fields_of(State& state);
  static void step_for_loop(ChainLists& lists, const Options& options);
  static void step_foreach(ChainLists& lists, const Options& options);
};
extern template class RuleOptimizer<MuonRule>;

// ----

// Muon (K. Jordan, 2024) for the matrices of hidden layers; the weight of a convolution is the
// matrix [outputs, all else]. Embeddings, heads and vectors belong to a group with sign_update, or
// to another optimizer:
//   m <- μ m + (1 - μ) g          u = (1 - μ) g + μ m with Nesterov, else m
//   X = orthogonalize(u)          p <- (1 - ηλ) p - η r X
// Construction throws Error{InvalidArgument} for a vector in a group without sign_update. A step
// uses muon_workspace() of the largest matrix; if less is available, it throws Error{Resource}
// before anything changes. Products use LibTorch. Checked steps are not supported.
class Muon : public RuleOptimizer<MuonRule> {
 public:
  explicit Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                MuonOptions defaults = {});
  explicit Muon(std::vector<torch::Tensor> params, MuonOptions defaults = {})
      : Muon(std::vector<torch::optim::OptimizerParamGroup>{{std::move(params)}},
             std::move(defaults)) {}

 protected:
  void check_group(const torch::optim::OptimizerParamGroup& group) const override;
  // Also accepts adjust_lr_fn: None, and adjust_lr, the name in files of earlier versions.
  std::unique_ptr<Options> with_json(const Options& now, const Json& json,
                                     const std::string& where) const override;
  StepReport step_fused(const FusedTensors& tensors, const StepControl& control) override;
};

// Approximates the nearest (semi-)orthogonal matrix to `update` [rows, cols]. Starts from X =
// update / max(|update|, eps) and computes A = X Xᵀ, X <- a X + (b A + c A²) X `ns_steps` times, on
// the smaller side.
torch::Tensor orthogonalize(const torch::Tensor& update, const MuonOptions& options);

}  // namespace hone::optim
