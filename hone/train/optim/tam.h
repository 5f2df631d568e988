// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>

#include <optional>
#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/rule/tam.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

using kernels::TAMScope;

// How the cosine of momentum and gradient is formed. Both are of scope Tensor.
enum class CorrelationMethod {
  Manual,            // <m, g> / ((|m| + eps_norm)(|g| + eps_norm))
  CosineSimilarity,  // each norm clamped from below by eps_corr, as at::cosine_similarity
};

// The fields that TAM and AdaTAMW share. Defaults are the paper's (arXiv 2412.18790); the learning
// rate is a required argument.
template <class Derived>
struct TorqueOptions : torch::optim::OptimizerCloneableOptions<Derived> {
  explicit TorqueOptions(double lr) : lr_(lr) {}

  Derived& lr(double value) { return set(lr_, value); }
  Derived& momentum(double value) { return set(momentum_, value); }
  Derived& decay_rate(double value) { return set(decay_rate_, value); }
  Derived& eps(double value) { return set(eps_, value); }
  Derived& weight_decay(double value) { return set(weight_decay_, value); }
  // Unset: Manual in Tensor scope. In Model scope the guard is always the clamp, and setting a
  // method is an error.
  Derived& correlation_method(CorrelationMethod value) {
    return set(correlation_method_, std::optional(value));
  }
  Derived& scope(TAMScope value) { return set(scope_, value); }
  Derived& eps_norm(double value) { return set(eps_norm_, value); }
  Derived& eps_corr(double value) { return set(eps_corr_, value); }
  // true: one read-modify-write pass. false: a checked step, which changes nothing unless every new
  // value is finite.
  Derived& use_inplace_ops(bool value) { return set(use_inplace_ops_, value); }
  // One log line per 100 steps: s, d, gradient norm, skipped steps.
  Derived& verbose(bool value) { return set(verbose_, value); }
  Derived& maximize(bool value) { return set(maximize_, value); }
  Derived& implementation(Implementation value) { return set(implementation_, value); }

  double lr() const { return lr_; }
  double momentum() const { return momentum_; }
  double decay_rate() const { return decay_rate_; }
  double eps() const { return eps_; }
  double weight_decay() const { return weight_decay_; }
  std::optional<CorrelationMethod> correlation_method() const { return correlation_method_; }
  TAMScope scope() const { return scope_; }
  double eps_norm() const { return eps_norm_; }
  double eps_corr() const { return eps_corr_; }
  bool use_inplace_ops() const { return use_inplace_ops_; }
  bool verbose() const { return verbose_; }
  bool maximize() const { return maximize_; }
  Implementation implementation() const { return implementation_; }

  double get_lr() const override { return lr_; }
  void set_lr(double value) override { lr_ = value; }

 protected:
  template <class T>
  Derived& set(T& field, T value) {
    field = value;
    return static_cast<Derived&>(*this);
  }

  double lr_;
  double momentum_ = 0.9;
  double decay_rate_ = 0.9;
  double eps_ = 1e-8;
  double weight_decay_ = 0;
  std::optional<CorrelationMethod> correlation_method_;
  TAMScope scope_ = TAMScope::Tensor;
  double eps_norm_ = 1e-10;
  double eps_corr_ = 1e-8;
  bool use_inplace_ops_ = true;
  bool verbose_ = false;
  bool maximize_ = false;
  Implementation implementation_ = Implementation::Fused;
};

struct TAMOptions : TorqueOptions<TAMOptions> {
  using TorqueOptions::TorqueOptions;
  // Weight decay on the parameter instead of in the gradient.
  TAMOptions& decoupled_weight_decay(bool value) { return set(decoupled_weight_decay_, value); }
  bool decoupled_weight_decay() const { return decoupled_weight_decay_; }

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  // Fields left at their defaults take those of `defaults`; lr is always this group's own.
  void inherit(const TAMOptions& defaults);

 private:
  template <class Self, class Visit>
  static void visit_fields(Self& self, const Visit& visit);

  bool decoupled_weight_decay_ = false;
};

// AdaTAMW: weight decay is always decoupled.
struct AdaTAMWOptions : TorqueOptions<AdaTAMWOptions> {
  explicit AdaTAMWOptions(double lr) : TorqueOptions(lr) { weight_decay_ = 1e-2; }
  AdaTAMWOptions& beta2(double value) { return set(beta2_, value); }
  double beta2() const { return beta2_; }

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  void inherit(const AdaTAMWOptions& defaults);

 private:
  template <class Self, class Visit>
  static void visit_fields(Self& self, const Visit& visit);

  double beta2_ = 0.999;
};

struct TAMParamState : torch::optim::OptimizerCloneableParamState<TAMParamState> {
  TORCH_ARG(int64_t, step) = 0;
  TORCH_ARG(double, correlation) = 0;  // s
  TORCH_ARG(torch::Tensor, momentum_buffer);
  TORCH_ARG(torch::Tensor, exp_avg_sq);  // AdaTAMW

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

// What TAM and AdaTAMW share: the groups of the kernel, the scope, s, the log line.
class TorqueOptimizer : public MultiTensorOptimizer {
 protected:
  using MultiTensorOptimizer::MultiTensorOptimizer;

  virtual kernels::TAMGroup group_of(const Options& options) const = 0;
  virtual bool adaptive() const = 0;
  virtual TAMScope scope() const = 0;
  virtual bool verbose() const = 0;

  std::unique_ptr<ParamState> make_state() const override;
  StateFields fields_of(ParamState& state) const override;
  StateNames state_names() const override { return {"momentum_buffer", "exp_avg_sq", ""}; }
  SlotUse slots() const override { return {true, adaptive(), false}; }
  std::string method_of(const Options& options) const override;
  StepReport step_fused(const kernels::MultiTensorPlan& plan, std::span<double> correlation,
                        const StepControl& control) override;
  void step_for_loop(ChainLists& lists, const Options& options) override;
  void step_foreach(ChainLists& lists, const Options& options) override;
  void after_step(const StepReport& report) override;
  void check_groups() const;

 private:
  // s and d of every tensor from the products of momentum and gradient.
  std::vector<at::Scalar> advance_damping(ChainLists& lists, const kernels::TAMGroup& group,
                                          const std::vector<kernels::Torque>& torques) const;
};

// Torque-Aware Momentum (formula: kernels/multi_tensor/rule/tam.h).
class TAM : public TorqueOptimizer {
 public:
  TAM(const std::vector<torch::optim::OptimizerParamGroup>& groups, TAMOptions defaults);
  TAM(std::vector<torch::Tensor> params, TAMOptions defaults)
      : TAM(std::vector<torch::optim::OptimizerParamGroup>{{std::move(params)}},
            std::move(defaults)) {}

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  kernels::TAMGroup group_of(const Options& options) const override;
  bool adaptive() const override { return false; }
  TAMScope scope() const override;
  bool verbose() const override;
  bool wants_checked_step() const override;
  Implementation implementation() const override;
  std::unique_ptr<Options> adopt_options(const Options& given) const override;
};

// TAM's momentum over Adam's second moment, with decoupled weight decay. Not a drop-in for Adam:
// with a constant gradient the first step is 15.8 lr per element, the largest 52.9 lr (t = 22).
class AdaTAMW : public TorqueOptimizer {
 public:
  AdaTAMW(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdaTAMWOptions defaults);
  AdaTAMW(std::vector<torch::Tensor> params, AdaTAMWOptions defaults)
      : AdaTAMW(std::vector<torch::optim::OptimizerParamGroup>{{std::move(params)}},
                std::move(defaults)) {}

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  kernels::TAMGroup group_of(const Options& options) const override;
  bool adaptive() const override { return true; }
  TAMScope scope() const override;
  bool verbose() const override;
  bool wants_checked_step() const override;
  Implementation implementation() const override;
  std::unique_ptr<Options> adopt_options(const Options& given) const override;
};

}  // namespace hone::optim
