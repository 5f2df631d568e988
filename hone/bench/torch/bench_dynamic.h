// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/bench/bench_run.h"

namespace hone::bench {

struct BenchDynamicOptions {
  std::vector<std::string> ops{"linear", "lstm"};
  std::vector<Index> rows{1, 16, 256};  // inputs of a linear layer, or sequences of an LSTM
  Index width = 512;                    // inputs and outputs of a layer
  Index steps = 32;                     // of an LSTM
  int threads = 0;                      // LibTorch threads, for all sides; 0: usable_cpus()
};

// Compares hone's dynamic int8 layers (nn::quantize, "int8:row") with LibTorch's dynamic quantized
// operators and with f32. Cases are "linear/512x512/rows16" and "lstm/512/rows16/steps32". Each row
// has rel_error, that of its output against f32. Throws Error{InvalidArgument} for unknown names
// and sizes out of range.
void bench_dynamic(const BenchDynamicOptions& options, BenchRun& run);

}  // namespace hone::bench
