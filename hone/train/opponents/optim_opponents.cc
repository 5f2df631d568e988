// SPDX-License-Identifier: Apache-2.0
#include "hone/train/opponents/optim_opponents.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <array>

#include "hone/core/check.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"

namespace hone::opponents {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr std::array<std::string_view, 4> kRules{"sgdm", "adamw", "tam", "adatamw"};
constexpr std::array<std::string_view, 6> kWays{"hone",        "hone_foreach", "hone_for_loop",
                                                "torch_optim", "aten_fused",   "aten_chain"};

// Small enough that thousands of steps on the same gradients stay finite.
constexpr double kLr = 1e-5, kMomentum = 0.9, kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;
constexpr double kWeightDecay = 0.01, kDecayRate = 0.9;

// Parameters with gradients, and lists of state for the bare operators.
struct Workload {
  Tensors params, grads, momentum, second_moment, steps, scratch;
  std::vector<double> correlation;
};

std::shared_ptr<Workload> make_workload(std::span<const Index> sizes) {
  auto work = std::make_shared<Workload>();
  for (const Index n : sizes) {
    work->params.push_back(at::randn({n}).set_requires_grad(true));
    work->grads.push_back(at::randn({n}));
    work->params.back().mutable_grad() = work->grads.back();
  }
  return work;
}

void add_state(Workload& work, bool second_moment, bool scratch) {
  for (const torch::Tensor& grad : work.grads) {
    work.momentum.push_back(at::zeros_like(grad));
    if (second_moment) work.second_moment.push_back(at::zeros_like(grad));
    if (scratch) work.scratch.push_back(at::empty_like(grad));
    work.steps.push_back(at::zeros({}));
  }
  work.correlation.resize(work.grads.size());
}

// Peak of live bytes that LibTorch's CPU allocator reports on this thread.
class PeakBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    live_ += size;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  Index peak() const { return peak_; }

 private:
  Index live_ = 0, peak_ = 0;
};

Index measure_peak(const std::function<void()>& step) {
  step();  // state is made in the first step
  const auto peak = std::make_shared<PeakBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, peak);
  step();
  return peak->peak();
}

// ---- hone ----

template <class Optimizer, class Options>
Stepper step_with_hone(std::string_view way, std::span<const Index> sizes, Options options) {
  const auto work = make_workload(sizes);
  options.implementation(way == "hone"           ? optim::Implementation::Fused
                         : way == "hone_foreach" ? optim::Implementation::Foreach
                                                 : optim::Implementation::ForLoop);
  const auto optimizer = std::make_shared<Optimizer>(work->params, options);
  Stepper stepper{std::string(way), [optimizer] { optimizer->step(); }, 0,
                  concat("hone::optim ", way == "hone" ? "fused" : way.substr(5))};
  stepper.peak_extra_bytes = measure_peak(stepper.step) + optimizer->stats().temporary_bytes;
  return stepper;
}

Stepper make_hone(std::string_view rule, std::string_view way, std::span<const Index> sizes) {
  if (rule == "sgdm") {
    return step_with_hone<optim::SGD>(way, sizes, optim::SGDOptions(kLr).momentum(kMomentum));
  }
  if (rule == "adamw") {
    return step_with_hone<optim::AdamW>(way, sizes,
                                        optim::AdamWOptions(kLr).weight_decay(kWeightDecay));
  }
  if (rule == "tam") return step_with_hone<optim::TAM>(way, sizes, optim::TAMOptions(kLr));
  return step_with_hone<optim::AdaTAMW>(way, sizes,
                                        optim::AdaTAMWOptions(kLr).weight_decay(kWeightDecay));
}

// ---- LibTorch's classes ----

template <class Optimizer, class Options>
Stepper step_with_torch(std::span<const Index> sizes, const Options& options, std::string name) {
  const auto work = make_workload(sizes);
  const auto optimizer = std::make_shared<Optimizer>(work->params, options);
  Stepper stepper{"torch_optim", [optimizer] { optimizer->step(); }, 0, std::move(name)};
  stepper.peak_extra_bytes = measure_peak(stepper.step);
  return stepper;
}

Stepper make_torch(std::string_view rule, std::span<const Index> sizes) {
  if (rule == "sgdm") {
    return step_with_torch<torch::optim::SGD>(
        sizes, torch::optim::SGDOptions(kLr).momentum(kMomentum), "torch::optim::SGD");
  }
  if (rule == "adamw") {
    return step_with_torch<torch::optim::AdamW>(
        sizes, torch::optim::AdamWOptions(kLr).weight_decay(kWeightDecay), "torch::optim::AdamW");
  }
  return {};
}

// ---- bare operators ----

// Wraps a body that works on `work` without gradients.
Stepper step_with_operators(std::shared_ptr<Workload> work, std::string_view way, std::string name,
                            const std::function<void(Workload&)>& body) {
  for (torch::Tensor& param : work->params) param.set_requires_grad(false);
  Stepper stepper{std::string(way),
                  [work, body] {
                    const c10::InferenceMode no_autograd;
                    body(*work);
                  },
                  0, std::move(name)};
  stepper.peak_extra_bytes = measure_peak(stepper.step);
  return stepper;
}

Stepper make_fused(std::string_view rule, std::span<const Index> sizes) {
  auto work = make_workload(sizes);
  if (rule == "sgdm") {
    add_state(*work, false, false);
    return step_with_operators(work, "aten_fused", "at::_fused_sgd_", [](Workload& w) {
      at::_fused_sgd_(w.params, w.grads, w.momentum, 0.0, kMomentum, kLr, 0.0, false, false, false);
    });
  }
  if (rule == "adamw") {
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
  const double torque = at::dot(w.momentum[i], w.grads[i]).item<double>();
  const double norms = at::linalg_vector_norm(w.momentum[i]).item<double>() *
                       at::linalg_vector_norm(w.grads[i]).item<double>();
  const double cosine = norms > 0 ? torque / norms : 0;
  w.correlation[i] = kDecayRate * w.correlation[i] + (1 - kDecayRate) * cosine;
  return kEps + (1 + w.correlation[i]) / 2;
}

Stepper make_chain(std::string_view rule, std::span<const Index> sizes) {
  auto work = make_workload(sizes);
  if (rule == "tam") {
    add_state(*work, false, false);
    return step_with_operators(work, "aten_chain", "dot, 2 norms, mul_, 2 add_", [](Workload& w) {
      for (std::size_t i = 0; i < w.params.size(); ++i) {
        w.momentum[i].mul_(kMomentum).add_(w.grads[i], advance_damping(w, i));
        w.params[i].add_(w.momentum[i], -kLr);
      }
    });
  }
  if (rule == "adatamw") {
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

void check_known(std::span<const std::string_view> known, std::string_view what,
                 std::string_view name) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  std::string list;
  for (const std::string_view item : known) list += concat(list.empty() ? "" : ", ", item);
  fail_argument("bench optim", concat("a ", what, " of: ", list), name);
}

}  // namespace

std::span<const std::string_view> optim_rules() { return kRules; }
std::span<const std::string_view> optim_ways() { return kWays; }

Stepper make_stepper(std::string_view rule, std::string_view way, std::span<const Index> sizes) {
  check_known(kRules, "rule", rule);
  check_known(kWays, "way to run it", way);
  if (way == "torch_optim") return make_torch(rule, sizes);
  if (way == "aten_fused") return make_fused(rule, sizes);
  if (way == "aten_chain") return make_chain(rule, sizes);
  return make_hone(rule, way, sizes);
}

void set_torch_threads(int threads) { at::set_num_threads(threads); }

}  // namespace hone::opponents
