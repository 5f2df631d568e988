// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/optim_peers.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "hone/bench/peer_process.h"
#include "hone/core/check.h"

namespace hone::bench {
namespace {

constexpr std::array<std::string_view, 6> kPeers{"torch_compile",     "bitsandbytes_32bit",
                                                 "bitsandbytes_8bit", "torchao_8bit",
                                                 "torchao_4bit",      "deepspeed"};

std::unique_ptr<PeerProcess> start(std::string_view name, const OptimPeerWork& work) {
  const auto python = peer_python(), script = peer_script("optim_step.py");
  if (python.empty() || script.empty()) return nullptr;
  return PeerProcess::try_start({python.string(), script.string(), "--peer", std::string(name),
                                 "--tensors", concat(work.tensors), "--elements",
                                 concat(work.elements), "--threads", concat(work.threads)});
}

}  // namespace

std::span<const std::string_view> optim_peers() { return kPeers; }

bool is_optim_peer(std::string_view name) {
  return std::find(kPeers.begin(), kPeers.end(), name) != kPeers.end();
}

void add_optim_peer(std::string_view name, const OptimPeerWork& work, BenchCase& bench_case) {
  add_peer(std::string(name), start(name, work), bench_case);
}

}  // namespace hone::bench
