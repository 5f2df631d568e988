// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/optim_contestants.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/kernels/multi_tensor/rule/cosine.h"
#include "hone/train/interop.h"
#include "hone/train/optim/option_fields.h"
#include "hone/train/optim/rule_table.h"
#include "hone/train/optim/tam.h"

namespace hone::bench {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr std::array<std::string_view, 8> kWays{"hone",        "hone_foreach", "hone_for_loop",
                                                "torch_optim", "aten_fused",   "aten_chain",
                                                "elementwise", "own"};

// Names that stand for a rule of the table in a setting of its own.
struct Variant {
  std::string_view name, rule;
};
constexpr std::array<Variant, 3> kVariants{
    {{"sgdm", "sgd"}, {"tam_row", "tam"}, {"amp_adamw", "adamw"}}};

constexpr std::array<std::string_view, 6> kCosineWays{
    "manual", "cosine_similarity", "vectorized", "auto", "aten_chain", "aten_normalize_multiply"};

// As in bench/peers/optim_step.py. Small enough that thousands of steps on the same gradients stay
// finite.
constexpr double kLr = 1e-5, kMomentum = 0.9, kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;
constexpr double kWeightDecay = 0.01, kDecayRate = 0.9;
constexpr Index kRow = 1024;
constexpr std::uint64_t kSeed = 7;
// Settings of amp_adamw: the norm is measured and never exceeds the limit, so that gradients keep
// their size.
constexpr double kInvScale = 0.5, kClipNorm = 1e9;

// Parameters with gradients, and lists of state for the bare operators.
struct Workload {
  Tensors params, grads, momentum, second_moment, steps, scratch;
  Tensors other_grads;
  std::vector<double> correlation;
};

void add_tensor(Workload& work, const std::vector<Index>& shape, c10::Device device = c10::kCPU) {
  work.params.push_back(at::randn(shape, device).set_requires_grad(true));
  work.grads.push_back(at::randn(shape, device));
  work.params.back().mutable_grad() = work.grads.back();
}

void renew_gradients(Workload& work) {
  if (work.other_grads.empty()) {
    for (const torch::Tensor& grad : work.grads) work.other_grads.push_back(at::randn_like(grad));
  }
  work.grads.swap(work.other_grads);
  for (std::size_t i = 0; i < work.params.size(); ++i) {
    work.params[i].mutable_grad() = work.grads[i];
  }
}

// The same tensors for every contestant.
std::shared_ptr<Workload> make_workload(const TensorList& list) {
  at::manual_seed(kSeed);
  auto work = std::make_shared<Workload>();
  for (const Index n : list.sizes) {
    // In rows where they come out even; only row-wise rules can tell.
    const bool rows = n > kRow && n % kRow == 0;
    add_tensor(*work, rows ? std::vector{n / kRow, kRow} : std::vector{n}, list.device);
  }
  return work;
}

void add_state(Workload& work, bool second_moment, bool scratch) {
  for (const torch::Tensor& grad : work.grads) {
    work.momentum.push_back(at::zeros_like(grad));
    if (second_moment) work.second_moment.push_back(at::zeros_like(grad));
    if (scratch) work.scratch.push_back(at::empty_like(grad));
    work.steps.push_back(at::zeros({}, grad.options()));
  }
  work.correlation.resize(work.grads.size());
}

// Peak of live bytes that LibTorch's allocators report on this thread. That of CUDA rounds them up.
class PeakBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    live_ += size;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  Index live() const { return live_; }
  Index peak() const { return peak_; }

 private:
  Index live_ = 0, peak_ = 0;
};

std::shared_ptr<PeakBytes> watch_bytes(const std::function<void()>& step) {
  auto bytes = std::make_shared<PeakBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, bytes);
  step();
  return bytes;
}

void measure_memory(Stepper& stepper) {
  stepper.state_bytes = watch_bytes(stepper.step)->live();  // state is made in the first step
  stepper.peak_extra_bytes = watch_bytes(stepper.step)->peak();
}

// ---- hone ----

Stepper step_with_hone(std::string_view way, const std::shared_ptr<Workload>& work,
                       const std::shared_ptr<optim::MultiTensorOptimizer>& optimizer,
                       const optim::StepControl& control = {}) {
  const auto implementation = way == "hone_foreach"    ? optim::Implementation::Foreach
                              : way == "hone_for_loop" ? optim::Implementation::ForLoop
                                                       : optim::Implementation::Fused;
  for (auto& group : optimizer->param_groups()) {
    dynamic_cast<optim::AddedFields&>(group.options()).implementation_ = implementation;
  }
  Stepper stepper{
      .name = std::string(way),
      .step = [optimizer, control] { optimizer->step_with(control); },
      .renew_gradients = [work] { renew_gradients(*work); },
      .implementation = concat("hone::optim ", way.starts_with("hone_") ? way.substr(5) : "fused")};
  measure_memory(stepper);
  stepper.peak_extra_bytes += optimizer->stats().temporary_bytes;
  return stepper;
}

Stepper make_hone(const OptimRule& rule, std::string_view way,
                  const std::shared_ptr<Workload>& work) {
  const optim::OptimConfig config = config_of(rule);
  const optim::RuleEntry& entry = optim::find_entry(config.name);
  optim::ParameterSets sets;
  for (const torch::Tensor& param : work->params) {
    const bool is_vector = entry.separates_embeddings && param.dim() < 2;
    (is_vector ? sets.vectors : sets.matrices).push_back(param);
  }
  optim::StepControl control;
  if (rule.base == "amp_adamw") control = {.inv_scale = kInvScale, .clip_norm = kClipNorm};
  return step_with_hone(way, work, entry.make(config, kLr, std::move(sets)), control);
}

Stepper make_own(const OptimRule& rule, const TensorList& list) {
  std::string_view by;
  if (rule.state_bits != 32) {
    by = rule.base;
  } else if (rule.base == "tam" || rule.base == "tam_row") {
    by = "sgdm";
  } else if (rule.base == "amp_adamw") {
    by = "adamw";
  } else {
    return {};
  }
  Stepper stepper = make_hone({by}, "hone", make_workload(list));
  stepper.name = concat("hone_", by);
  return stepper;
}

// ---- LibTorch's classes ----

template <class Optimizer, class Options>
Stepper step_with_torch(const TensorList& list, const Options& options, std::string name) {
  const auto work = make_workload(list);
  const auto optimizer = std::make_shared<Optimizer>(work->params, options);
  Stepper stepper{.name = "torch_optim",
                  .step = [optimizer] { optimizer->step(); },
                  .renew_gradients = [work] { renew_gradients(*work); },
                  .implementation = std::move(name)};
  measure_memory(stepper);
  return stepper;
}

// What a loop with LibTorch's C++ front end does before and after the step: unscale, look for inf,
// clip, and clear by setting to none, which is free. Scaling down and up in turn keeps the
// gradients in range over thousands of steps.
Stepper step_with_amp_chain(const TensorList& list) {
  const auto work = make_workload(list);
  const auto optimizer = std::make_shared<torch::optim::AdamW>(
      work->params, torch::optim::AdamWOptions(kLr).weight_decay(kWeightDecay));
  const auto step = [work, optimizer, down = true]() mutable {
    const c10::NoGradGuard no_autograd;
    bool finite = true;
    for (torch::Tensor& grad : work->grads) {
      grad.mul_(down ? kInvScale : 1 / kInvScale);
      finite = finite && std::isfinite(grad.sum().item<float>());
    }
    down = !down;
    if (!finite) return;
    torch::nn::utils::clip_grad_norm_(work->params, kClipNorm);
    optimizer->step();
  };
  Stepper stepper{.name = "torch_optim",
                  .step = step,
                  .renew_gradients = [work] { renew_gradients(*work); },
                  .implementation = "mul_, sum, clip_grad_norm_, torch::optim::AdamW"};
  measure_memory(stepper);
  return stepper;
}

Stepper make_torch(std::string_view rule, const TensorList& list) {
  namespace to = torch::optim;
  if (rule == "sgdm") {
    return step_with_torch<to::SGD>(list, to::SGDOptions(kLr).momentum(kMomentum),
                                    "torch::optim::SGD");
  }
  if (rule == "adam") {
    return step_with_torch<to::Adam>(list, to::AdamOptions(kLr), "torch::optim::Adam");
  }
  if (rule == "adagrad") {
    return step_with_torch<to::Adagrad>(list, to::AdagradOptions(kLr), "torch::optim::Adagrad");
  }
  if (rule == "rmsprop") {
    return step_with_torch<to::RMSprop>(list, to::RMSpropOptions(kLr), "torch::optim::RMSprop");
  }
  if (rule == "amp_adamw") return step_with_amp_chain(list);
  if (rule == "adamw") {
    return step_with_torch<to::AdamW>(list, to::AdamWOptions(kLr).weight_decay(kWeightDecay),
                                      "torch::optim::AdamW");
  }
  return {};
}

// ---- bare operators ----

// Wraps a body that works on `work` without gradients.
Stepper step_with_operators(std::shared_ptr<Workload> work, std::string_view way, std::string name,
                            const std::function<void(Workload&)>& body) {
  for (torch::Tensor& param : work->params) param.set_requires_grad(false);
  Stepper stepper{.name = std::string(way),
                  .step =
                      [work, body] {
                        const c10::InferenceMode no_autograd;
                        body(*work);
                      },
                  .renew_gradients = [work] { renew_gradients(*work); },
                  .implementation = std::move(name)};
  measure_memory(stepper);
  return stepper;
}

Stepper make_fused(std::string_view rule, const TensorList& list) {
  if (rule == "sgdm") {
    const auto work = make_workload(list);
    add_state(*work, false, false);
    return step_with_operators(work, "aten_fused", "at::_fused_sgd_", [](Workload& w) {
      at::_fused_sgd_(w.params, w.grads, w.momentum, 0.0, kMomentum, kLr, 0.0, false, false, false);
    });
  }
  if (rule == "adam") {
    const auto work = make_workload(list);
    add_state(*work, true, false);
    return step_with_operators(work, "aten_fused", "at::_fused_adam_", [](Workload& w) {
      at::_foreach_add_(w.steps, 1);
      at::_fused_adam_(w.params, w.grads, w.momentum, w.second_moment, {}, w.steps, kLr, kBeta1,
                       kBeta2, 0.0, kEps, false, false);
    });
  }
  if (rule == "adagrad") {
    const auto work = make_workload(list);
    add_state(*work, true, false);
    return step_with_operators(work, "aten_fused", "at::_fused_adagrad_", [](Workload& w) {
      at::_foreach_add_(w.steps, 1);
      at::_fused_adagrad_(w.params, w.grads, w.second_moment, w.steps, kLr, 0.0, 0.0, 1e-10, false);
    });
  }
  if (rule == "adamw") {
    const auto work = make_workload(list);
    add_state(*work, true, false);
    return step_with_operators(work, "aten_fused", "at::_fused_adamw_", [](Workload& w) {
      at::_foreach_add_(w.steps, 1);
      at::_fused_adamw_(w.params, w.grads, w.momentum, w.second_moment, {}, w.steps, kLr, kBeta1,
                        kBeta2, kWeightDecay, kEps, false, false);
    });
  }
  return {};
}

// ε + d of tensor i: a dot product and two norms.
double advance_damping(Workload& w, std::size_t i) {
  const double torque = at::dot(w.momentum[i].view(-1), w.grads[i].view(-1)).item<double>();
  const double norms = at::linalg_vector_norm(w.momentum[i]).item<double>() *
                       at::linalg_vector_norm(w.grads[i]).item<double>();
  const double cosine = norms > 0 ? torque / norms : 0;
  w.correlation[i] = kDecayRate * w.correlation[i] + (1 - kDecayRate) * cosine;
  return kEps + (1 + w.correlation[i]) / 2;
}

Stepper make_chain(std::string_view rule, const TensorList& list) {
  if (rule == "tam") {
    const auto work = make_workload(list);
    add_state(*work, false, false);
    return step_with_operators(work, "aten_chain", "dot, 2 norms, mul_, 2 add_", [](Workload& w) {
      for (std::size_t i = 0; i < w.params.size(); ++i) {
        w.momentum[i].mul_(kMomentum).add_(w.grads[i], advance_damping(w, i));
        w.params[i].add_(w.momentum[i], -kLr);
      }
    });
  }
  if (rule == "adatamw") {
    const auto work = make_workload(list);
    add_state(*work, true, true);
    return step_with_operators(
        work, "aten_chain", "dot, 2 norms, 7 in-place operators", [](Workload& w) {
          for (std::size_t i = 0; i < w.params.size(); ++i) {
            w.momentum[i].mul_(kMomentum).add_(w.grads[i], advance_damping(w, i));
            w.second_moment[i].mul_(kBeta2).addcmul_(w.grads[i], w.grads[i], 1 - kBeta2);
            at::sqrt_out(w.scratch[i], w.second_moment[i]).add_(kEps);
            w.params[i].mul_(1 - kLr * kWeightDecay).addcdiv_(w.momentum[i], w.scratch[i], -kLr);
          }
        });
  }
  return {};
}

// The correlation as third-party TAM has it: element-wise, through tensors of every intermediate.
Stepper make_elementwise(std::string_view rule, const TensorList& list) {
  if (rule != "tam") return {};
  auto work = make_workload(list);
  add_state(*work, true, false);  // second_moment holds s
  return step_with_operators(work, "elementwise", "13 operators on whole tensors", [](Workload& w) {
    for (std::size_t i = 0; i < w.params.size(); ++i) {
      torch::Tensor &m = w.momentum[i], &s = w.second_moment[i];
      const torch::Tensor& g = w.grads[i];
      const torch::Tensor cosine = (m / m.norm().add(1e-8)) * (g / g.norm().add(1e-8));
      s.mul_(kDecayRate).add_(cosine, 1 - kDecayRate);
      const torch::Tensor damping = (s + 1) / 2;
      m.mul_(kMomentum).add_((damping + kEps) * g);
      w.params[i].add_(m, -kLr);
    }
  });
}

// ---- the cosine alone ----

Stepper make_cosine_step(std::string_view way, const torch::Tensor& m, const torch::Tensor& g) {
  const auto result = std::make_shared<double>(0);
  const auto step = [&](std::string name, auto compute) {
    return Stepper{.name = std::string(way),
                   .step = [=] { *result = compute(); },
                   .implementation = std::move(name)};
  };
  if (way == "aten_chain") {
    return step("dot, 2 norms", [m = m.view(-1), g = g.view(-1)] {
      return at::dot(m, g).item<double>() /
             (at::linalg_vector_norm(m).item<double>() * at::linalg_vector_norm(g).item<double>());
    });
  }
  if (way == "aten_normalize_multiply") {
    return step("2 norms, 2 divisions, product, sum", [m, g] {
      return ((m / m.norm().add(1e-8)) * (g / g.norm().add(1e-8))).sum().item<double>();
    });
  }
  const TensorView momentum = view_of(m, "momentum"), grad = view_of(g, "gradient");
  if (way == "vectorized" || (way == "auto" && m.numel() > 1000 && m.dim() >= 2)) {
    const auto rows = std::make_shared<std::vector<double>>(m.numel() / m.size(-1));
    return step("rows", [=, keep = m, keep_too = g] {
      kernels::cosine_rows(momentum, grad, libtorch_executor(), *rows);
      return rows->front();
    });
  }
  const bool clamp = way == "cosine_similarity" || (way == "auto" && m.numel() > 1000);
  const auto guard = clamp ? kernels::CosineGuard::Clamp : kernels::CosineGuard::Additive;
  return step(clamp ? "clamped" : "additive", [=, keep = m, keep_too = g] {
    return kernels::cosine(momentum, grad, guard, libtorch_executor());
  });
}

void check_known(std::span<const std::string_view> known, std::string_view what,
                 std::string_view name) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  fail_argument("bench optim", concat("a ", what, " of: ", join_names(known)), name);
}

}  // namespace

optim::OptimConfig config_of(const OptimRule& rule) {
  optim::OptimConfig config;
  config.name = rule.base;
  for (const Variant& variant : kVariants) {
    if (variant.name == rule.base) config.name = variant.rule;
  }
  if (rule.base == "tam_row") config.correlation_method = "vectorized";
  const bool is_rmsprop = config.name == "rmsprop";  // at LibTorch's defaults
  config.momentum = is_rmsprop ? 0 : kMomentum;
  config.beta2 = is_rmsprop ? 0.99 : kBeta2;
  config.weight_decay = optim::find_entry(config.name).decoupled_decay ? kWeightDecay : 0;
  config.state_dtype = rule.state_bits == 8 ? "8bit" : rule.state_bits == 16 ? "bf16" : "fp32";
  return config;
}

std::vector<std::string_view> bench_rules() {
  std::vector<std::string_view> names;
  for (const optim::RuleEntry& entry : optim::rule_entries()) names.push_back(entry.name);
  for (const Variant& variant : kVariants) names.push_back(variant.name);
  return names;
}

OptimRule parse_rule(std::string_view name) {
  OptimRule rule{name};
  for (const auto& [suffix, bits] : {std::pair(std::string_view("_bf16"), 16), {"_8bit", 8}}) {
    if (!name.ends_with(suffix)) continue;
    rule = {name.substr(0, name.size() - suffix.size()), bits};
  }
  check_known(bench_rules(), "rule (each also with _bf16 or _8bit)", rule.base);
  return rule;
}

int state_bits_of(const OptimRule& rule, Index elements) {
  return rule.state_bits == 8 && elements < optim::kFewestCoded ? 32 : rule.state_bits;
}

void check_way(std::string_view way, std::span<const std::string_view> others) {
  std::vector<std::string_view> known(kWays.begin(), kWays.end());
  known.insert(known.end(), others.begin(), others.end());
  check_known(known, "way to run it", way);
}

Stepper make_stepper(const OptimRule& rule, std::string_view way, const TensorList& list) {
  check_way(way);
  if (way == "torch_optim") return make_torch(rule.base, list);
  if (way == "aten_fused") return make_fused(rule.base, list);
  if (way == "aten_chain") return make_chain(rule.base, list);
  if (way == "elementwise") return make_elementwise(rule.base, list);
  if (way == "own") return make_own(rule, list);
  return make_hone(rule, way, make_workload(list));
}

std::span<const std::string_view> cosine_ways() { return kCosineWays; }

Stepper make_cosine(std::string_view way, std::span<const Index> shape) {
  check_known(kCosineWays, "way to take a cosine", way);
  const c10::NoGradGuard no_autograd;
  return make_cosine_step(way, at::randn(shape), at::randn(shape));
}

Stepper make_tam_step(std::string_view way, std::span<const Index> shape, bool in_place) {
  const auto work = std::make_shared<Workload>();
  add_tensor(*work, {shape.begin(), shape.end()});
  return step_with_hone(
      way, work,
      std::make_shared<optim::TAM>(
          work->params,
          optim::TAMOptions(kLr)
              .correlation_method(way == "vectorized" ? optim::CorrelationMethod::Vectorized
                                  : way == "cosine_similarity"
                                      ? optim::CorrelationMethod::CosineSimilarity
                                  : way == "auto" ? optim::CorrelationMethod::Auto
                                                  : optim::CorrelationMethod::Manual)
              .use_inplace_ops(in_place)));
}

void set_torch_threads(int threads) { at::set_num_threads(threads); }

}  // namespace hone::bench
