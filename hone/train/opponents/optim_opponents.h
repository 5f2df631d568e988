// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone::opponents {

// Who takes an optimiser step in `hone bench optim`, hone's classes and LibTorch's ways alike, each
// on fp32 parameters, gradients and state of its own.
struct Stepper {
  std::string name;
  std::function<void()> step;
  // Most bytes that a step after the first held besides parameters, gradients and state, as seen by
  // LibTorch's allocator and hone's own count.
  Index peak_extra_bytes = 0;
  std::string implementation;  // what runs, for the row
};

// The rules: sgdm, adamw, tam (Tensor scope), adatamw.
std::span<const std::string_view> optim_rules();
// Ways to run one:
//   hone, hone_foreach, hone_for_loop   the three implementations of hone's class
//   torch_optim   torch::optim::SGD, AdamW
//   aten_fused    at::_fused_sgd_, at::_fused_adamw_, with state lists and step tensors at hand
//   aten_chain    TAM and AdaTAMW from the fewest ATen operators: dot, two norms, in-place updates
std::span<const std::string_view> optim_ways();

// One tensor per entry of `sizes`. Nothing (an empty step) where LibTorch has no such way for the
// rule. Error{InvalidArgument} for an unknown rule or way.
Stepper make_stepper(std::string_view rule, std::string_view way, std::span<const Index> sizes);

// LibTorch's threads from now on, which hone's optimisers use too.
void set_torch_threads(int threads);

}  // namespace hone::opponents
