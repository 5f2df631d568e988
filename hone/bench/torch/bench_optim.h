// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/bench/bench_run.h"

namespace hone::bench {

struct BenchOptimOptions {
  // Tensors x elements, or "guide": the five sizes of the TAM guide.
  std::vector<std::string> sizes{"24x1048576", "2000x1024", "1x33554432"};
  std::vector<std::string> rules{"sgdm", "adamw", "tam", "adatamw"};
  std::vector<std::string> ours{"hone"};  // also hone_foreach, hone_for_loop
  // LibTorch's implementations, "own", and for AdamW the peers of optim_peers.h.
  std::vector<std::string> against{"torch_optim", "aten_fused", "aten_chain", "elementwise", "own"};
  // Whether every step has newly allocated gradients, as after zero_grad().
  bool fresh_gradients = false;
  std::string device = "cpu";  // or "cuda", "cuda:N": LibTorch's ways alone
  int threads = 0;             // LibTorch threads, for all sides; 0: usable_cpus()
};

// "sgd, adam, …": what `rules` may name, without suffixes.
std::string optim_rule_names();

// Runs one case per size and rule: hone's optimizer, LibTorch's implementations
// (optim_contestants.h) and peers in their own processes, interleaved. gb_per_s is effective: the
// least traffic of the rule (floor_bytes_per_param) over the time. Rows also have implementation,
// peak_extra_bytes (not for peers) and, if known, state_bytes_per_param.
// On a CUDA device, a run is one step and the wait for its end, and the bandwidth is that of a copy
// on the device. Rows then have the name of the device instead of bytes.
// Throws Error{InvalidArgument} for unknown names, and for sizes, rules and peers that do not run
// on the device. Also throws what select_device() and kernels::make_cuda_copy() throw.
void bench_optim(const BenchOptimOptions& options, BenchRun& run);

}  // namespace hone::bench
