// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/optim/optim_config.h"

namespace hone::bench {

// A way to take an optimizer step in `hone bench optim`: by a class of hone or by LibTorch. Each
// way has its own fp32 parameters and gradients, and its own state, which is fp32 except in hone's
// ways with a rule of narrow state.
struct Stepper {
  std::string name;
  std::function<void()> step;
  std::function<void()> renew_gradients =
      {};  // replaces the gradients by newly allocated ones; may be empty
  // On the CPU: the most bytes that a step after the first uses besides parameters, gradients and
  // state, as counted by LibTorch's allocator and by hone.
  Index peak_extra_bytes = 0;
  Index state_bytes = 0;       // allocated by the first step and kept; 0: unknown
  std::string implementation;  // name of the code that runs, for the row
};

// The rule of a step: one of optim::rule_entries(), or sgdm (sgd), tam_row (TAM by rows of 1024) or
// amp_adamw (unscale, finite check, clip, AdamW, clear). The suffix "_bf16" or "_8bit" is the type
// in which hone keeps its state.
struct OptimRule {
  std::string_view base;
  int state_bits = 32;
};
// All names, without suffixes.
std::vector<std::string_view> bench_rules();
// Throws Error{InvalidArgument} for an unknown name.
OptimRule parse_rule(std::string_view name);
// The configuration from which hone makes its optimizer.
optim::OptimConfig config_of(const OptimRule& rule);
// Throws Error{InvalidArgument}, which lists the known ways and `others`, for an unknown one.
void check_way(std::string_view way, std::span<const std::string_view> others = {});
// Bits per element of a tensor's state. Small tensors have no 8-bit codes.
int state_bits_of(const OptimRule& rule, Index elements);

// Ways to run a rule:
// - hone, hone_foreach, hone_for_loop: the implementations of hone's class; narrow state has only
//   the first
// - torch_optim: torch::optim's class; for amp_adamw with the operators that a loop needs before it
// - aten_fused: at::_fused_sgd_, _adam_, _adamw_, _adagrad_, with state lists and steps at hand
// - aten_chain: tam and adatamw from the fewest ATen operators: dot, two norms, in-place updates
// - elementwise: TAM as others implement it: a cosine per element, every intermediate a tensor
// - own: hone's baseline for the rule: for narrow state, the rule with state in fp32; for tam and
//   tam_row, hone's SGD with momentum; for amp_adamw, hone's AdamW

// One tensor per entry of `sizes`, on `device`.
struct TensorList {
  std::vector<Index> sizes;
  c10::Device device = c10::kCPU;
};
// Makes a stepper. On CUDA, a step is enqueued in the current stream. If LibTorch has no such way
// for the rule, the step is empty. Throws Error{InvalidArgument} for an unknown way.
Stepper make_stepper(const OptimRule& rule, std::string_view way, const TensorList& list);

// Ways to compute the cosine of two tensors in cache: hone's four methods (manual,
// cosine_similarity, vectorized, auto), aten_chain (dot and two norms) and aten_normalize_multiply
// (as in the guide's own code).
std::span<const std::string_view> cosine_ways();
Stepper make_cosine(std::string_view way, std::span<const Index> shape);
// A whole TAM step of hone on one tensor of this shape, by one of the four methods. The step is
// checked if it is not in place.
Stepper make_tam_step(std::string_view way, std::span<const Index> shape, bool in_place = true);

// Sets the number of LibTorch threads, which hone's optimizers use too.
void set_torch_threads(int threads);

}  // namespace hone::bench
