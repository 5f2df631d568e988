// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/bench_optim.h"

#include <charconv>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/cpu_info.h"
#include "hone/kernels/multi_tensor/plan.h"
#include "hone/train/interop.h"
#include "hone/train/opponents/optim_opponents.h"

namespace hone::app {
namespace {

// "24x1048576" as 24 sizes.
std::vector<Index> parse_sizes(const std::string& text) {
  Index tensors = 0, elements = 0;
  const char *begin = text.data(), *end = begin + text.size();
  const auto first = std::from_chars(begin, end, tensors);
  const bool split = first.ec == std::errc() && first.ptr != end && *first.ptr == 'x';
  const auto second = split ? std::from_chars(first.ptr + 1, end, elements) : first;
  constexpr Index kMostTensors = 1'000'000, kMostElements = Index{1} << 36;
  const bool good = split && second.ec == std::errc() && second.ptr == end && tensors >= 1 &&
                    tensors <= kMostTensors && elements >= 1 && elements <= kMostElements / tensors;
  HONE_CHECK(good, "bench optim", "sizes as tensors x elements, for example 24x1048576", text);
  return std::vector<Index>(static_cast<std::size_t>(tensors), elements);
}

// Bytes per parameter that a step must move, fp32. A TAM whose tensors stay in cache between its
// two passes saves the 8 bytes of the first.
double floor_bytes(const std::string& rule, Index elements_per_tensor) {
  const double cached = elements_per_tensor <= kernels::kChunkElements ? 8 : 0;
  if (rule == "sgdm") return 20;
  if (rule == "adamw") return 28;
  if (rule == "tam") return 28 - cached;
  return 36 - cached;
}

// Tensors per parameter that a step touches: parameter, gradient, state.
int tensors_of(const std::string& rule) { return rule == "adamw" || rule == "adatamw" ? 4 : 3; }

// Before every timed step, for all sides: LibTorch's threads are awake, as after a backward pass.
// Behind an opponent that ran on one thread they would sleep.
void wake_threads() {
  Executor& executor = libtorch_executor();
  executor.parallel_for(executor.workers(), 1, [](Index, Index, int) {});
}

void add_case(const BenchOptimOptions& options, const std::string& size, const std::string& rule,
              const MemoryProbe& memory, BenchRun& run) {
  const std::vector<Index> sizes = parse_sizes(size);
  const double floor = floor_bytes(rule, sizes.front());
  BenchCase bench_case;
  bench_case.name = concat(size, "/", rule);
  bench_case.bytes = floor * static_cast<double>(sizes.front()) * static_cast<double>(sizes.size());
  // Tensors that stay in the last-level cache are not limited by memory.
  const Index tensor_bytes = static_cast<Index>(bench_case.bytes / floor * 4 * tensors_of(rule));
  if (tensor_bytes > cpu_info().l3_bytes) bench_case.memory = &memory;
  const auto add = [&](const std::string& way, bool ours) {
    opponents::Stepper stepper = opponents::make_stepper(rule, way, sizes);
    if (!stepper.step) return;  // no such operator for this rule
    bench_case.contestants.push_back(
        {.name = stepper.name, .run = std::move(stepper.step), .prepare = wake_threads});
    bench_case.ours.push_back(ours);
    bench_case.extra.push_back({{"implementation", stepper.implementation},
                                {"floor_bytes_per_param", floor},
                                {"peak_extra_bytes", stepper.peak_extra_bytes}});
  };
  for (const std::string& way : options.ours) add(way, true);
  for (const std::string& way : options.against) add(way, false);
  run.add(bench_case);
}

}  // namespace

void bench_optim(const BenchOptimOptions& options, BenchRun& run) {
  opponents::set_torch_threads(options.threads > 0 ? options.threads : usable_cpus());
  // On LibTorch's pool, so that no second pool spins beside it.
  const MemoryProbe memory = make_memory_probe(MemoryTraffic::Update, libtorch_executor());
  for (const std::string& size : options.sizes) {
    for (const std::string& rule : options.rules) {
      add_case(options, size, rule, memory, run);
    }
  }
}

}  // namespace hone::app
