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

// Who takes an optimizer step in `hone bench optim`, hone's classes and LibTorch's ways alike, each
// on fp32 parameters, gradients and state of its own.
struct Stepper {
  std::string name;
  std::function<void()> step;
  std::function<void()> renew_gradients =
      {};  // replaces the gradients by newly allocated ones; may be empty
  // On the CPU: most bytes that a step after the first held besides parameters, gradients and
  // state, as seen by LibTorch's allocator and hone's own count.
  Index peak_extra_bytes = 0;
  Index state_bytes = 0;       // that the first step left allocated; 0: unknown
  std::string implementation;  // what runs, for the row
};

// What is stepped: a rule of optim::rule_entries(), or sgdm (sgd), tam_row (TAM by rows of 1024),
// amp_adamw (unscale, finite check, clip, AdamW, clear); "_bf16" or "_8bit" after any is what hone
// keeps its state in.
struct OptimRule {
  std::string_view base;
  int state_bits = 32;
};
// Every name without a suffix.
std::vector<std::string_view> bench_rules();
// Error{InvalidArgument} for an unknown one.
OptimRule parse_rule(std::string_view name);
// What hone makes its optimizer from.
optim::OptimConfig config_of(const OptimRule& rule);
// Error{InvalidArgument} naming the known ones and `others`.
void check_way(std::string_view way, std::span<const std::string_view> others = {});
// The bits of a tensor's state: small tensors have no codes.
int state_bits_of(const OptimRule& rule, Index elements);

// Ways to run one:
// - hone, hone_foreach, hone_for_loop: the implementations of hone's class; narrow state has the
//   first alone
// - torch_optim: torch::optim's class; for amp_adamw with the operators that a loop needs before it
// - aten_fused: at::_fused_sgd_, _adam_, _adamw_, _adagrad_, with state lists and steps at hand
// - aten_chain: the TAM family from the fewest ATen operators: dot, two norms, in-place updates
// - elementwise: TAM as others ship it: a cosine per element, every intermediate a tensor
// - own: what the rule is measured by: itself with state in fp32, else hone's SGD with momentum for
//   tam and tam_row and its AdamW for amp_adamw

// One tensor per entry of `sizes`, on `device`.
struct TensorList {
  std::vector<Index> sizes;
  c10::Device device = c10::kCPU;
};
// On CUDA a step is enqueued in the current stream. Nothing (an empty step) where LibTorch has no
// such way for the rule. Error{InvalidArgument} for an unknown way.
Stepper make_stepper(const OptimRule& rule, std::string_view way, const TensorList& list);

// The cosine of two tensors in cache: hone's four methods (manual, cosine_similarity, vectorized,
// auto), aten_chain (dot and two norms) and aten_normalize_multiply (what the guide's own code
// does).
std::span<const std::string_view> cosine_ways();
Stepper make_cosine(std::string_view way, std::span<const Index> shape);
// A whole TAM step of hone's on one tensor of this shape, by one of the four methods; checked where
// it is not in place.
Stepper make_tam_step(std::string_view way, std::span<const Index> shape, bool in_place = true);

// LibTorch's threads from now on, which hone's optimizers use too.
void set_torch_threads(int threads);

}  // namespace hone::bench
