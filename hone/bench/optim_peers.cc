// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/optim_peers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "hone/bench/peer_process.h"
#include "hone/core/check.h"

namespace hone::bench {
namespace {

constexpr std::array<std::string_view, 6> kPeers{"torch_compile",     "bitsandbytes_32bit",
                                                 "bitsandbytes_8bit", "torchao_8bit",
                                                 "torchao_4bit",      "deepspeed"};

// OpenMP's threads spin for milliseconds after a parallel region and would take a core from the
// other process.
constexpr auto kRest = std::chrono::milliseconds(50);

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
  const std::shared_ptr<PeerProcess> peer = start(name, work);
  if (peer == nullptr) {
    bench_case.absent.emplace_back(name);
    return;
  }
  const auto seconds = std::make_shared<double>(0);
  const auto step = [peer, seconds] {
    *seconds = peer->ask({{"op", "step"}}).at("seconds").get<double>();
    std::this_thread::sleep_for(kRest);
  };
  const auto wake = [peer] {
    std::this_thread::sleep_for(kRest);
    peer->ask({{"op", "wake"}});
  };
  bench_case.contestants.push_back(
      {.name = std::string(name), .run = step, .prepare = wake, .own_seconds = [seconds] {
         return *seconds;
       }});
  bench_case.ours.push_back(false);
  Json row = peer->greeting();
  row.erase("ready");
  bench_case.extra.push_back(std::move(row));
}

}  // namespace hone::bench
