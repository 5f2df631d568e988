// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "hone/bench/bench_run.h"
#include "hone/core/index.h"

namespace hone::bench {

// AdamW of other software, each in its own process (bench/peers/optim_step.py): torch_compile,
// bitsandbytes_32bit, bitsandbytes_8bit, torchao_8bit, torchao_4bit, deepspeed.
std::span<const std::string_view> optim_peers();
bool is_optim_peer(std::string_view name);

struct OptimPeerWork {
  Index tensors = 0, elements = 0;  // elements of each tensor
  int threads = 1;
};

// Starts a peer and adds it to the case. The peer times its own steps, so that communication
// between the processes does not count. Its row describes it (implementation, threads,
// state_bytes_per_param). A peer that is not installed or does not run here is added as absent.
void add_optim_peer(std::string_view name, const OptimPeerWork& work, BenchCase& bench_case);

}  // namespace hone::bench
