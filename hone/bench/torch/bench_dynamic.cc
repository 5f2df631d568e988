// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_dynamic.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/utils.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#include "hone/bench/torch/optim_contestants.h"
#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/train/compress/quantize.h"
#include "hone/train/compress/recurrent.h"
#include "hone/train/relative_error.h"

namespace hone::bench {
namespace {

using at::Tensor;
using c10::IValue;
using Run = std::function<Tensor()>;

constexpr std::string_view kDynamic = "bench dynamic";
constexpr std::uint64_t kSeed = 7;

// Calls an operator of LibTorch that C++ has no function for, and returns its first result.
IValue call(const char* name, const char* overload, torch::jit::Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).callBoxed(stack);
  return stack.front();
}

// The engine that LibTorch's own default is on this machine: x86, or oneDNN.
bool choose_engine() {
  const auto& engines = at::globalContext().supportedQEngines();
  for (const at::QEngine engine : {at::QEngine::X86, at::QEngine::FBGEMM, at::QEngine::ONEDNN}) {
    if (std::ranges::find(engines, engine) == engines.end()) continue;
    at::globalContext().setQEngine(engine);
    return true;
  }
  return false;
}

// Codes of 8 bits for each output, as torch.ao.quantization's per-channel observer makes them.
Tensor quantized(const Tensor& weight) {
  const Tensor scales = (weight.abs().amax(1) / 127.5).clamp_min(1e-12).to(at::kDouble);
  return at::quantize_per_channel(weight, scales, at::zeros({weight.size(0)}, at::kLong), 0,
                                  at::kQInt8);
}

IValue packed(const Tensor& weight, const Tensor& bias) {
  return call("quantized::linear_prepack", "", {quantized(weight), bias});
}

class Case {
 public:
  Case(std::string name, const Run& reference) : want_(reference()) {
    case_.name = std::move(name);
  }
  void add(const std::string& name, bool is_ours, const Run& run) {
    case_.contestants.push_back({.name = name, .run = [run] { run(); }});
    case_.ours.push_back(is_ours);
    case_.extra.push_back(Json{{"rel_error", relative_error(run(), want_)}});
  }
  BenchCase& bench_case() { return case_; }

 private:
  BenchCase case_;
  Tensor want_;
};

void add_linear(const BenchDynamicOptions& options, Index rows, BenchRun& run) {
  const Index width = options.width;
  torch::manual_seed(kSeed);
  torch::nn::Linear linear(width, width);
  const Tensor x = at::randn({rows, width});
  const Run reference = [=]() mutable { return linear->forward(x); };
  Case each(concat("linear/", width, "x", width, "/rows", rows), reference);
  torch::nn::Sequential ours(linear);
  nn::quantize(ours, {.spec = "int8:row"});
  each.add("hone", true, [=]() mutable { return ours->forward(x); });
  if (choose_engine()) {
    const IValue weight = packed(linear->weight.detach(), linear->bias.detach());
    each.add("torch_dynamic", false, [=] {
      return call("quantized::linear_dynamic", "", {x, weight, false}).toTensor();
    });
  } else {
    each.bench_case().absent.emplace_back("torch_dynamic");
  }
  each.add("f32", false, reference);
  run.add(each.bench_case());
}

struct LstmNet : torch::nn::Module {
  explicit LstmNet(const torch::nn::LSTM& layer)
      : lstm(register_module("lstm", nn::LstmSlot(layer))) {}
  nn::LstmSlot lstm;
};

void add_lstm(const BenchDynamicOptions& options, Index rows, BenchRun& run) {
  const Index width = options.width, steps = options.steps;
  torch::manual_seed(kSeed);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(width, width));
  const Tensor x = at::randn({steps, rows, width}), zeros = at::zeros({1, rows, width});
  const Run reference = [=]() mutable { return std::get<0>(lstm->forward(x)); };
  Case each(concat("lstm/", width, "/rows", rows, "/steps", steps), reference);
  const auto net = std::make_shared<LstmNet>(lstm);
  nn::quantize({net, [net](const Tensor& in) { return std::get<0>(net->lstm->forward(in)); }},
               {.spec = "int8:row"});
  each.add("hone", true, [=] { return std::get<0>(net->lstm->forward(x)); });
  if (choose_engine()) {
    const auto parameters = lstm->named_parameters();
    const auto of = [&](const char* name) { return parameters[name].detach(); };
    const IValue cell = call(
        "quantized::make_quantized_cell_params_dynamic", "",
        {packed(of("weight_ih_l0"), of("bias_ih_l0")), packed(of("weight_hh_l0"), of("bias_hh_l0")),
         of("bias_ih_l0"), of("bias_hh_l0"), false});
    c10::impl::GenericList cells(cell.type());
    cells.push_back(cell);
    const std::vector<Tensor> state{zeros, zeros};
    each.add("torch_dynamic", false, [=] {
      return call("aten::quantized_lstm", "input",
                  {x, state, cells, true, 1, 0.0, false, false, false, at::kQInt8, true})
          .toTensor();
    });
  } else {
    each.bench_case().absent.emplace_back("torch_dynamic");
  }
  each.add("f32", false, reference);
  run.add(each.bench_case());
}

}  // namespace

void bench_dynamic(const BenchDynamicOptions& options, BenchRun& run) {
  HONE_CHECK(options.width >= 16 && options.width <= 16384, kDynamic, "a width of 16 to 16384",
             options.width);
  HONE_CHECK(options.steps >= 1 && options.steps <= 4096, kDynamic, "1 to 4096 steps",
             options.steps);
  for (const Index rows : options.rows) {
    HONE_CHECK(rows >= 1 && rows <= 65536, kDynamic, "1 to 65536 rows", rows);
  }
  for (const std::string& op : options.ops) {
    HONE_CHECK(op == "linear" || op == "lstm", kDynamic, "linear or lstm", op);
  }
  set_torch_threads(options.threads > 0 ? options.threads : usable_cpus());
  const at::NoGradGuard no_grad;
  for (const std::string& op : options.ops) {
    for (const Index rows : options.rows) {
      (op == "linear" ? add_linear : add_lstm)(options, rows, run);
    }
  }
}

}  // namespace hone::bench
