// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hone/bench/bench_run.h"
#include "hone/core/thread/executor.h"

namespace hone::bench {

// The product y[rows, outputs] = x[rows, depth] · Wᵀ with f32 weights, which a contestant computes.
struct GemmProblem {
  std::span<const float> x, weight;
  Index rows = 0, outputs = 0, depth = 0;
  Index copies = 1;  // call i uses copy i % copies of the weight, so that no copy remains in a
                     // cache
  int threads = 1;
};

struct GemmContestant {
  std::string name;  // "torch_linear"
  // Returns the callable to time. Empty if the software is not in this build; its rows say
  // "absent".
  std::function<std::function<void()>(const GemmProblem&)> make;
};
using GemmContestants = std::vector<GemmContestant>;

// The contestants that `--against` takes, all absent, for builds without LibTorch.
GemmContestants absent_gemm_contestants();

struct GemmShape {
  Index outputs = 0, depth = 0;
};

struct BenchGemmOptions {
  // Dense types, GGUF types and QuantSpecs.
  std::vector<std::string> formats = {"f32",  "f16",      "bf16",          "q8_0",
                                      "q4_0", "int8:row", "int4:g128:asym"};
  std::vector<Index> rows = {1, 4, 8, 16, 64, 256, 512};
  std::vector<GemmShape> shapes = {{4096, 4096}, {5632, 2048}, {2048, 5632}};
  bool cold = true, hot = true;
  Index cold_bytes =
      Index{512} << 20;  // weights to cycle through; raised to 4 times the last-level cache
};

// A smaller set of cases, for a short run.
BenchGemmOptions quick_bench_gemm_options();

// Times packed products with random weights. Activations are packed inside the timed part
// (quantized if the format prefers it). In cases "4096x4096/q8_0/m1/cold", bytes are weights + x +
// y, and share_of_roof is relative to the measured read bandwidth (cold) or f32 peak (dense
// formats).
// Contestants run the f32 product: in the f32 cases and, for other formats, in a second case
// ".../against_f32". That case reports only arithmetic rates, because the two sides read different
// bytes. Throws Error{InvalidArgument} for an unknown format or a shape that the format cannot
// have.
void bench_gemm(const BenchGemmOptions& options, BenchRun& run, Measurer& measurer,
                Executor& executor, const GemmContestants& contestants);

}  // namespace hone::bench
