// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/freeze.h"

#include <ATen/ATen.h>

#include <functional>
#include <utility>

#include "hone/core/check.h"
#include "hone/train/device.h"
#include "hone/train/relative_error.h"
#include "hone/train/sketch/convert.h"
#include "hone/train/sketch/frozen_linear.h"

namespace hone::nn {
namespace {

using torch::Tensor;

struct Form {
  std::string name;
  torch::nn::AnyModule layer;
  std::function<Tensor(const Tensor&)> forward;
};

template <class Layer>
Form form_of(std::string name, Layer layer) {
  return {std::move(name), torch::nn::AnyModule(layer),
          [layer](const Tensor& x) mutable { return layer->forward(x); }};
}

// The dense layer followed by the activation, which to_dense leaves out.
struct DenseFormImpl : torch::nn::Cloneable<DenseFormImpl> {
  DenseFormImpl(const torch::nn::Linear& dense, Activation kind)
      : linear(register_module("linear", dense)), activation(kind) {
    for (Tensor& parameter : parameters()) parameter.set_requires_grad(false);
  }
  void reset() override { linear = register_module("linear", torch::nn::Linear(linear->options)); }
  Tensor forward(const Tensor& x) { return detail::activated(activation, linear->forward(x)); }

  torch::nn::Linear linear;
  Activation activation;
};
TORCH_MODULE(DenseForm);

std::vector<Form> forms_of(FactoredLinearImpl& layer, const FreezeOptions& options) {
  std::vector<Form> forms;
  const Activation activation = layer.options().epilogue.activation;
  forms.push_back(form_of("dense", DenseForm(to_dense(layer), activation)));
  forms.push_back(form_of("f32", freeze(layer, FrozenType::Float32)));
  if (options.level == FreezeLevel::Exact) return forms;
  forms.push_back(form_of("bf16", freeze(layer, FrozenType::BFloat16)));
  FactoredLinear smaller = recompress(layer, options.tolerance);
  const Index rank = smaller->options().rank;
  if (rank < layer.options().rank) {
    forms.push_back(form_of(concat("rank ", rank), freeze(*smaller, FrozenType::Float32)));
  }
  if (options.level == FreezeLevel::Aggressive) {
    forms.push_back(form_of("int8", freeze(layer, FrozenType::Int8)));
  }
  return forms;
}

}  // namespace

FrozenChoice freeze_measured(const FactoredLinear& layer, const Tensor& sample, Measurer& measurer,
                             const FreezeOptions& options) {
  HONE_REQUIRE(sample.numel() > 0, "freeze", "The sample has no rows.");
  HONE_CHECK(options.tolerance >= 0 && options.tolerance < 1, "freeze", "a tolerance in [0, 1)",
             options.tolerance);
  const at::NoGradGuard no_grad;
  FactoredLinear base = layer;
  base->eval();
  const Tensor want = base->forward(sample);
  FrozenChoice choice{torch::nn::AnyModule(base), {}};
  std::vector<Form> forms = forms_of(*base, options);
  const auto timed_run = [&sample](auto forward) {
    return [forward, &sample] {
      forward(sample);
      synchronize(sample.device());
    };
  };
  std::vector<Contestant> contestants{
      {"unchanged", timed_run([&base](const Tensor& x) { base->forward(x); })}};
  std::vector<std::size_t> timed;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    FreezeTrial trial{forms[i].name, relative_error(forms[i].forward(sample), want), {}, false, {}};
    if (trial.error <= options.tolerance) {
      contestants.push_back({forms[i].name, timed_run(forms[i].forward)});
      timed.push_back(i);
    } else {
      trial.reason = concat("Its error of ", trial.error, " is above the tolerance of ",
                            options.tolerance, ".");
    }
    choice.trials.push_back(trial);
  }
  if (timed.empty()) return choice;
  const Measurement measurement = measurer.measure(contestants, options.measure);
  FreezeTrial* best = nullptr;
  for (std::size_t at = 0; at < timed.size(); ++at) {
    FreezeTrial& trial = choice.trials[timed[at]];
    trial.speedup = measurer.speedup(measurement, static_cast<Index>(at) + 1, 0);
    if (trial.speedup.low <= 1) {
      trial.reason = "It is not faster than the layer as it is.";
      continue;
    }
    trial.reason = "Another form is faster.";
    if (best && best->speedup.ratio >= trial.speedup.ratio) continue;
    best = &trial;
    choice.layer = forms[timed[at]].layer;
  }
  if (best) {
    best->is_chosen = true;
    best->reason = "It is the fastest form within the tolerance.";
  }
  return choice;
}

}  // namespace hone::nn
