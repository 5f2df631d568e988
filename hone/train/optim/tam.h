// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/rule/tam.h"
#include "hone/train/optim/rule_optimizer.h"

// Found by argument-dependent lookup.
namespace hone::kernels {
constexpr auto names_of(TAMScope) {
  return std::to_array<std::string_view>({"model", "tensor", "row"});
}
}  // namespace hone::kernels

namespace hone::optim {

using kernels::TAMScope;

// The formula for the cosine of momentum and gradient.
enum class CorrelationMethod {
  Manual,            // scope Tensor: <m, g> / ((|m| + eps_norm)(|g| + eps_norm))
  CosineSimilarity,  // scope Tensor: norms clamped from below by eps_corr, as at::cosine_similarity
  // Scope Row, clamped. A row is the elements of one index of the first dimension, such as an
  // output channel of a convolution. Tensors with fewer than two dimensions are one row.
  Vectorized,
  // Selects by shape: Manual up to large_tensor_threshold elements; above it, Vectorized for
  // matrices and CosineSimilarity for vectors. The algorithm thus depends on the shape: see plan().
  Auto,
};

// The form of m: a sum that tends to g / (1 - β), as in the paper, or an average that tends to g.
enum class MomentumForm { Sum, Ema };

constexpr auto names_of(CorrelationMethod) {
  return std::to_array<std::string_view>({"manual", "cosine_similarity", "vectorized", "auto"});
}
constexpr auto names_of(MomentumForm) { return std::to_array<std::string_view>({"sum", "ema"}); }

// Options of the TAM family. Defaults are from the paper (arXiv 2412.18790). The learning rate is a
// required argument.
struct TorqueFields {
  double lr_ = 0;
  double momentum_ = 0.9;
  double decay_rate_ = 0.9;
  double beta2_ = 0.999;
  double eps_ = 1e-8;
  double weight_decay_ = 0;
  bool decoupled_weight_decay_ = false;
  std::optional<CorrelationMethod> correlation_method_;
  std::optional<TAMScope> scope_;
  std::int64_t large_tensor_threshold_ = 1000;
  double eps_norm_ = 1e-10;
  double eps_corr_ = 1e-8;
  std::optional<double> fixed_damping_;
  MomentumForm momentum_form_ = MomentumForm::Sum;
  bool bias_correction_ = false;
  bool use_inplace_ops_ = true;
  bool verbose_ = false;
};

// Throws Error{Unsupported} for an archive or saved group with an option that only earlier versions
// had: scope element, or lagged_cosine.
void refuse_removed_options(torch::serialize::InputArchive& archive);
void refuse_removed_options(const Json& group, const std::string& where);

template <class Derived>
struct TorqueOptions : PlainOptions<Derived>, TorqueFields {
  static constexpr bool kAdaptive = false;

  explicit TorqueOptions(double value) { lr(value); }

  Derived& lr(double value) { return this->set(lr_, value); }
  Derived& momentum(double value) { return this->set(momentum_, value); }
  Derived& decay_rate(double value) { return this->set(decay_rate_, value); }
  Derived& eps(double value) { return this->set(eps_, value); }
  Derived& weight_decay(double value) { return this->set(weight_decay_, value); }
  // If unset: Vectorized with scope Row, otherwise Manual. The optimizer throws if it contradicts
  // scope().
  Derived& correlation_method(CorrelationMethod value) {
    return this->set(correlation_method_, std::optional(value));
  }
  // Default: the scope of the method.
  Derived& scope(TAMScope value) { return this->set(scope_, std::optional(value)); }
  // Read by method Auto only.
  Derived& large_tensor_threshold(std::int64_t value) {
    return this->set(large_tensor_threshold_, value);
  }
  Derived& eps_norm(double value) { return this->set(eps_norm_, value); }
  Derived& eps_corr(double value) { return this->set(eps_corr_, value); }
  // Fixes d; s does not change. Use it as a control in comparisons with SGD.
  Derived& fixed_damping(double value) { return this->set(fixed_damping_, std::optional(value)); }
  // true: one read-modify-write pass. false: a checked step, which changes nothing unless every new
  // value is finite. On CUDA, a checked step temporarily copies parameters and state.
  Derived& use_inplace_ops(bool value) { return this->set(use_inplace_ops_, value); }
  // One log line per 100 steps: s, d, gradient norm, skipped steps.
  Derived& verbose(bool value) { return this->set(verbose_, value); }

  double lr() const { return lr_; }
  double momentum() const { return momentum_; }
  double decay_rate() const { return decay_rate_; }
  double eps() const { return eps_; }
  double weight_decay() const { return weight_decay_; }
  std::optional<CorrelationMethod> correlation_method() const { return correlation_method_; }
  std::optional<TAMScope> scope() const { return scope_; }
  std::int64_t large_tensor_threshold() const { return large_tensor_threshold_; }
  double eps_norm() const { return eps_norm_; }
  double eps_corr() const { return eps_corr_; }
  std::optional<double> fixed_damping() const { return fixed_damping_; }
  bool use_inplace_ops() const { return use_inplace_ops_; }
  bool verbose() const { return verbose_; }

  using PlainOptions<Derived>::serialize;
  void serialize(torch::serialize::InputArchive& archive) override {
    refuse_removed_options(archive);
    PlainOptions<Derived>::serialize(archive);
  }

  template <class Self, class Visit>
  static void visit_fields(Self& self, const Visit& visit) {
    visit("lr", self.lr_);
    visit("momentum", self.momentum_);
    visit("decay_rate", self.decay_rate_);
    visit("beta2", self.beta2_);
    visit("eps", self.eps_);
    visit("weight_decay", self.weight_decay_);
    visit("decoupled_weight_decay", self.decoupled_weight_decay_);
    visit("correlation_method", self.correlation_method_);
    visit("scope", self.scope_);
    visit("large_tensor_threshold", self.large_tensor_threshold_);
    visit("eps_norm", self.eps_norm_);
    visit("eps_corr", self.eps_corr_);
    visit("fixed_damping", self.fixed_damping_);
    visit("momentum_form", self.momentum_form_);
    visit("bias_correction", self.bias_correction_);
    visit("use_inplace_ops", self.use_inplace_ops_);
    visit("verbose", self.verbose_);
    TorqueOptions::visit_added(self, visit);
  }
};

struct TAMOptions : TorqueOptions<TAMOptions> {
  static constexpr const char* kOptimizer = "TAM";
  using TorqueOptions::TorqueOptions;
  // true: applies weight decay to the parameter instead of the gradient.
  TAMOptions& decoupled_weight_decay(bool value) { return set(decoupled_weight_decay_, value); }
  bool decoupled_weight_decay() const { return decoupled_weight_decay_; }

  // The presets of the reference guide; none sets a learning rate.
  static TAMOptions high_performance(double lr);  // Auto, in place
  static TAMOptions stable(double lr);            // Manual, checked steps
  static TAMOptions large_model(double lr);       // Vectorized, in place
  static TAMOptions memory_limited(double lr);    // Manual, checked steps, momentum in bf16
  // Manual below 1e8 parameters, Auto (500) up to 1e9, Vectorized above; all in place.
  static TAMOptions for_model_size(double lr, double parameters);
};

// The fields that only the adaptive ones have.
template <class Derived>
struct AdaptiveTorqueOptions : TorqueOptions<Derived> {
  static constexpr bool kAdaptive = true;
  using TorqueOptions<Derived>::TorqueOptions;
  Derived& beta2(double value) { return this->set(this->beta2_, value); }
  // Added by hone, not in the paper: Ema and bias correction give steps of Adam's size.
  Derived& momentum_form(MomentumForm value) { return this->set(this->momentum_form_, value); }
  Derived& bias_correction(bool value) { return this->set(this->bias_correction_, value); }
  double beta2() const { return this->beta2_; }
  MomentumForm momentum_form() const { return this->momentum_form_; }
  bool bias_correction() const { return this->bias_correction_; }
};

// AdaTAM: weight decay is L2, or decoupled on request.
struct AdaTAMOptions : AdaptiveTorqueOptions<AdaTAMOptions> {
  static constexpr const char* kOptimizer = "AdaTAM";
  using AdaptiveTorqueOptions::AdaptiveTorqueOptions;
  AdaTAMOptions& decoupled_weight_decay(bool value) { return set(decoupled_weight_decay_, value); }
  bool decoupled_weight_decay() const { return decoupled_weight_decay_; }
};

// AdaTAMW: weight decay is always decoupled.
struct AdaTAMWOptions : AdaptiveTorqueOptions<AdaTAMWOptions> {
  static constexpr const char* kOptimizer = "AdaTAMW";
  explicit AdaTAMWOptions(double lr) : AdaptiveTorqueOptions(lr) {
    weight_decay_ = 1e-2;
    decoupled_weight_decay_ = true;
  }
};

struct PlainTAMState : torch::optim::OptimizerCloneableParamState<PlainTAMState> {
  TORCH_ARG(int64_t, step) = 0;
  TORCH_ARG(double, correlation) = 0;  // s
  TORCH_ARG(torch::Tensor, momentum_buffer);
  TORCH_ARG(torch::Tensor, exp_avg_sq);       // AdaTAM, AdaTAMW
  TORCH_ARG(torch::Tensor, row_correlation);  // s of scope Row, fp64

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};
struct TAMParamState : AddedState<TAMParamState, PlainTAMState> {};

// Base class of the TAM family: groups of the kernel, methods and scopes, s, and the log line.
class TorqueOptimizer : public MultiTensorOptimizer {
 public:
  bool needs_all_gradients() const override;  // scope Model
  // On CUDA waits for the device.
  OptimizerStats stats() const override;

 protected:
  TorqueOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                  std::unique_ptr<Options> defaults, const char* name, bool adaptive);

  StateFields fields_of(ParamState& state) const override;
  StateNames state_names() const override {
    return {.momentum = "momentum_buffer", .second_moment = "exp_avg_sq", .own = "correlation"};
  }
  SlotUse slots_of(const Options& options) const override;
  Index row_length_for(const torch::Tensor& param, const Options& options) const override;
  std::span<double> own_numbers(ParamState& state, Index count) const override;
  void check_imported(const NamedState& item) const override;
  void prepare_control(StepControl& control) const override;
  void add_to_entry(const torch::Tensor& param, const Options& options,
                    TensorPlanEntry& entry) const override;
  std::vector<double> adopt_tensors(std::vector<Active>& tensors) override;
  StepReport step_fused(const FusedTensors& tensors, const StepControl& control) override;
  void check_operators(const torch::Tensor& param, const Options& options) const override;
  void step_for_loop(ChainLists& lists, const Options& options) override;
  void step_foreach(ChainLists& lists, const Options& options) override;
  void after_step(const StepReport& report) override;
  void check_group(const torch::optim::OptimizerParamGroup& group) const override;
  void check_groups_agree() const override;

 private:
  static const TorqueFields& fields(const Options& options);
  static kernels::TAMGroup group_of(const Options& options);
  // Returns how s of a parameter is measured.
  static kernels::TAMMethod method_for(const torch::Tensor& param, const Options& options);
  bool steps_model() const {
    return !methods_.empty() && methods_.front().scope == TAMScope::Model;
  }
  StepReport step_on_host(const kernels::MultiTensorPlan& plan,
                          std::span<const kernels::TAMGroup> groups, const StepControl& control);
  // s and d of every tensor from the products of momentum and gradient.
  std::vector<at::Scalar> advance_damping(ChainLists& lists, const Options& options,
                                          const std::vector<kernels::Torque>& torques);

  // Sums of s and d over the tensors of a step.
  struct StepMeans {
    double s = 0, d = 0;
    Index tensors = 0;
    void add(double tensor_s, double tensor_d) { s += tensor_s, d += tensor_d, ++tensors; }
    // Writes the means, if there are any, and resets the sums.
    void write(OptimizerStats& stats);
  };
  void add_to_means(std::size_t group, std::span<const double> s, StepMeans& means) const;

  bool adaptive_;
  mutable StepMeans means_;
  // Each of these lists has one item per tensor of the plan.
  std::vector<kernels::TAMMethod> methods_;
  std::vector<ParamState*> states_;
  std::vector<std::span<double>> correlation_;
  std::vector<double*> places_;  // addresses of correlation_
  std::vector<std::size_t> stepped_groups_;
};

// Base class of TAM, AdaTAM and AdaTAMW.
template <class OwnOptions>
class TorqueClass : public TypedOptimizer<TorqueOptimizer, OwnOptions, TAMParamState> {
 public:
  TorqueClass(const std::vector<torch::optim::OptimizerParamGroup>& groups, OwnOptions defaults);
  TorqueClass(std::vector<torch::Tensor> params, OwnOptions defaults)
      : TorqueClass(std::vector<torch::optim::OptimizerParamGroup>{{std::move(params)}},
                    std::move(defaults)) {}

 protected:
  using typename TorqueOptimizer::Options;

  std::unique_ptr<Options> with_json(const Options& now, const Json& json,
                                     const std::string& where) const override;
};
extern template class TorqueClass<TAMOptions>;
extern template class TorqueClass<AdaTAMOptions>;
extern template class TorqueClass<AdaTAMWOptions>;

// Torque-Aware Momentum (formula: kernels/multi_tensor/rule/tam.h).
class TAM : public TorqueClass<TAMOptions> {
 public:
  using TorqueClass::TorqueClass;
};

// TAM's momentum over Adam's second moment. Not a drop-in replacement for Adam: with default
// options and a constant gradient, its first steps are many times as large (docs/notes/tam.md). See
// momentum_form.
class AdaTAM : public TorqueClass<AdaTAMOptions> {
 public:
  using TorqueClass::TorqueClass;
};

// AdaTAM with decoupled weight decay.
class AdaTAMW : public TorqueClass<AdaTAMWOptions> {
 public:
  using TorqueClass::TorqueClass;
};

// Returns the rate at which TAM moves as far as SGD with momentum at `sgdm_lr`: sgdm_lr / d, with
// the damping d at which a run has settled. Throws Error{InvalidArgument} if no step was taken or d
// is 0.
double suggest_lr(double sgdm_lr, const OptimizerStats& stats);

}  // namespace hone::optim
