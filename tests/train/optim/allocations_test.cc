// SPDX-License-Identifier: Apache-2.0
// What step() takes besides parameters, gradients and state, over 24 tensors of 1 Mi elements.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>

#include "hone/train/memory/memory_meter.h"
#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/rmsprop.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"

namespace hone::optim {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr Index kTensors = 24, kElements = Index{1} << 20;

// A line "Name:  123 kB" of /proc/self/status, in bytes.
Index read_status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return -1;
}

// The peak of resident memory is from now on; false where the kernel does not allow that.
bool reset_resident_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

using MakeOptimizer = std::function<std::unique_ptr<MultiTensorOptimizer>(const Tensors&)>;

template <class Optimizer, class Options>
MakeOptimizer maker(const Options& options) {
  return [=](const Tensors& params) { return std::make_unique<Optimizer>(params, options); };
}

// 64 B per tensor, 24 B per 16,384 elements, 1 MiB per worker.
void expect_within_bar(const char* rule, const MakeOptimizer& make, const StepControl& control) {
  Tensors params;
  for (Index i = 0; i < kTensors; ++i) {
    params.push_back(torch::full({kElements}, 0.5f).requires_grad_());
    params.back().mutable_grad() = torch::full({kElements}, 0.25f);
  }
  const auto optimizer = make(params);
  optimizer->step_with(control);
  const Index workers = at::get_num_threads();
  const Index bar = 64 * kTensors + 24 * kTensors * kElements / 16'384 + workers * (1 << 20);
  const memory::MemoryMeter meter;
  const Index before = meter.use().current;
  meter.reset_peak();
  const bool resident_known = reset_resident_peak();
  const Index resident = read_status("VmRSS");
  optimizer->step_with(control);
  EXPECT_EQ(meter.use().peak - before, 0) << rule << ": no tensor";
  EXPECT_LE(optimizer->stats().temporary_bytes, bar) << rule;
  if (resident_known) {
    EXPECT_LE(read_status("VmHWM") - resident, bar) << rule;
  }
}

TEST(Allocations, of_a_step_stay_within_the_bar_for_every_rule) {
  const std::pair<const char*, MakeOptimizer> rules[] = {
      {"sgd", maker<SGD>(SGDOptions(1e-3).momentum(0.9))},
      {"adam", maker<Adam>(AdamOptions(1e-3).weight_decay(0.1))},
      {"adamw", maker<AdamW>(AdamWOptions(1e-3).amsgrad(true))},
      {"adamw 8 bits", maker<AdamW>(AdamWOptions(1e-3).state_dtype(StateDtype::Block8))},
      {"adagrad", maker<Adagrad>(AdagradOptions(1e-3))},
      {"rmsprop", maker<RMSprop>(RMSpropOptions(1e-3).momentum(0.9).centered(true))},
      {"lion", maker<Lion>(LionOptions(1e-4))},
      {"tam", maker<TAM>(TAMOptions(1e-3).weight_decay(0.1))},
      {"tam checked", maker<TAM>(TAMOptions(1e-3).use_inplace_ops(false))},
      {"adatamw", maker<AdaTAMW>(AdaTAMWOptions(1e-5))},
  };
  for (const auto& [rule, make] : rules) {
    expect_within_bar(rule, make, {});
    expect_within_bar(rule, make, {.inv_scale = 0.5, .clip_norm = 1});
  }
  if (!reset_resident_peak()) GTEST_SKIP() << "no resident peak: /proc/self/clear_refs is closed";
}

}  // namespace
}  // namespace hone::optim
