// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_optim.h"

#include <charconv>
#include <utility>

#include "hone/bench/optim_peers.h"
#include "hone/bench/torch/optim_contestants.h"
#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/names.h"
#include "hone/core/text_format.h"
#include "hone/kernels/cuda/device_info.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/train/device.h"
#include "hone/train/interop.h"
#include "hone/train/optim/rule_table.h"

namespace hone::bench {
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
  HONE_CHECK(good, "bench optim",
             concat("sizes as tensors x elements, for example 24x1048576, of at most ",
                    kMostTensors, " tensors and 2^36 elements in all"),
             text);
  return std::vector<Index>(static_cast<std::size_t>(tensors), elements);
}

// What a step must move per parameter, and the tensors it touches: parameter, gradient, state.
struct Traffic {
  double floor_bytes = 0;
  double resident_bytes = 0;
};

// The traffic of a step of one rule. On the CPU, a TAM whose tensors stay in cache between its two
// passes saves the first.
Traffic traffic_of(const bench::OptimRule& rule, Index elements_per_tensor, c10::Device device) {
  const optim::OptimConfig config = bench::config_of(rule);
  const optim::RuleEntry& entry = optim::find_entry(config.name);
  const double moment = bench::state_bits_of(rule, elements_per_tensor) / 8.0;
  const auto moments = static_cast<double>(entry.moments(config));
  Traffic traffic{12 + 2 * moments * moment, 8 + moments * moment};
  const bool cached = device.is_cpu() && elements_per_tensor <= kernels::kChunkElements;
  const bool has_sums = entry.is_torque() && config.correlation_method != "vectorized";
  if (has_sums && !cached) traffic.floor_bytes += 4 + moment;
  if (rule.base == "amp_adamw") traffic.floor_bytes += 4;  // the gradient is read twice
  return traffic;
}

// Before every timed step, for all sides: LibTorch's threads are awake, as after a backward pass.
// After a contestant that ran on one thread they would sleep.
void wake_threads() {
  Executor& executor = libtorch_executor();
  executor.parallel_for(executor.workers(), 1, [](Index, Index, int) {});
}

// What all contestants run on.
struct Place {
  const BenchOptimOptions& options;
  c10::Device device;
  kernels::MemoryProbe memory;
  Index last_cache_bytes = 0;
  std::string device_name;  // of a CUDA device, for the rows
};

Place place_of(const BenchOptimOptions& options, c10::Device device) {
  if (device.is_cpu()) {
    // Runs on LibTorch's pool, so that no second pool spins next to it.
    return {options,
            device,
            kernels::make_memory_probe(kernels::MemoryTraffic::Update, libtorch_executor()),
            cpu_info().last_cache_bytes,
            {}};
  }
  const std::shared_ptr<kernels::CudaCopy> copy =
      kernels::make_cuda_copy(device.index(), Index{1} << 30);
  const kernels::CudaDevice facts =
      kernels::query_cuda().devices.at(static_cast<std::size_t>(device.index()));
  return {options,
          device,
          {{.name = "device copy", .run = [copy] { copy->run(); }},
           static_cast<double>(copy->bytes_moved())},
          facts.last_cache_bytes,
          concat(device.str(), ", ", facts.name)};
}

std::function<void()> wait_after(std::function<void()> step, c10::Device device) {
  if (device.is_cpu()) return step;
  return [step = std::move(step), device] {
    step();
    synchronize(device);
  };
}

// Each way has tensors of its own. Running out of memory would end the process.
void check_memory(const Place& place, double bytes_per_way) {
  if (!place.device.is_cpu()) return;
  const auto ways = static_cast<double>(place.options.ours.size() + place.options.against.size());
  const Index needed = static_cast<Index>(ways * bytes_per_way), free = available_memory_bytes();
  HONE_CHECK(needed <= free, "bench optim",
             concat("sizes that need at most the ", format_bytes(free), " that are free"),
             format_bytes(needed));
}

void add_case(const Place& place, const std::string& size, const std::string& name, BenchRun& run) {
  const BenchOptimOptions& options = place.options;
  const bench::OptimRule rule = bench::parse_rule(name);
  const std::vector<Index> sizes = parse_sizes(size);
  const Traffic traffic = traffic_of(rule, sizes.front(), place.device);
  BenchCase bench_case;
  bench_case.name = concat(size, "/", name);
  const double elements = static_cast<double>(sizes.front()) * static_cast<double>(sizes.size());
  check_memory(place, traffic.resident_bytes * elements);
  const bench::TensorList list{sizes, place.device};
  bench_case.bytes = traffic.floor_bytes * elements;
  // Tensors that stay in the last-level cache, or a good part of them, are not limited by memory.
  const auto tensor_bytes = static_cast<Index>(traffic.resident_bytes * elements);
  bench_case.no_memory_share = kernels::why_no_memory_share(tensor_bytes, place.last_cache_bytes);
  if (bench_case.no_memory_share.empty()) bench_case.memory = &place.memory;
  const auto add = [&](const std::string& way, bool ours) {
    bench::Stepper stepper = bench::make_stepper(rule, way, list);
    if (!stepper.step) {  // no such operator
      log_info(concat("bench optim: ", way, " has no step of ", name));
      return;
    }
    const auto renew = options.fresh_gradients ? stepper.renew_gradients : nullptr;
    const auto prepare = [renew, on_cpu = place.device.is_cpu()] {
      if (renew) renew();
      if (on_cpu) wake_threads();
    };
    bench_case.contestants.push_back({.name = stepper.name,
                                      .run = wait_after(std::move(stepper.step), place.device),
                                      .prepare = prepare});
    bench_case.ours.push_back(ours);
    Json row{{"implementation", stepper.implementation},
             {"floor_bytes_per_param", traffic.floor_bytes}};
    if (place.device.is_cpu()) {
      row["peak_extra_bytes"] = stepper.peak_extra_bytes;
      if (stepper.state_bytes > 0) {
        row["state_bytes_per_param"] = static_cast<double>(stepper.state_bytes) / elements;
      }
    } else {
      row["device"] = place.device_name;
    }
    bench_case.extra.push_back(std::move(row));
  };
  const auto add_peer = [&](const std::string& peer) {
    if (rule.base != "adamw") {
      log_info(concat("bench optim: ", peer, " has no step of ", name));
      return;
    }
    add_optim_peer(peer,
                   {.tensors = static_cast<Index>(sizes.size()),
                    .elements = sizes.front(),
                    .threads = libtorch_executor().workers()},
                   bench_case);
  };
  for (const std::string& way : options.ours) add(way, true);
  for (const std::string& way : options.against) {
    if (is_optim_peer(way)) {
      add_peer(way);
    } else {
      add(way, false);
    }
  }
  run.add(bench_case);
}

// The five sizes of the reference guide on one thread: the cosine alone and a whole step, by each
// method, and a step in place next to a checked one. They fit the caches, so no memory bandwidth is
// reported.
void add_guide_cases(BenchRun& run) {
  const std::vector<std::vector<Index>> shapes{{100}, {1000}, {64, 64}, {512, 512}, {1024, 1024}};
  const auto add = [](BenchCase& bench_case, bench::Stepper stepper, const std::string& name,
                      bool ours) {
    bench_case.contestants.push_back({.name = name, .run = std::move(stepper.step)});
    bench_case.ours.push_back(ours);
    bench_case.extra.push_back({{"implementation", stepper.implementation},
                                {"peak_extra_bytes", stepper.peak_extra_bytes}});
  };
  bench::set_torch_threads(1);
  for (const std::vector<Index>& shape : shapes) {
    BenchCase cosine, step, in_place;
    const std::string size = shape.size() == 1 ? concat(shape[0]) : concat(shape[0], "x", shape[1]);
    cosine.name = concat("guide/", size, "/cosine");
    step.name = concat("guide/", size, "/tam_step");
    in_place.name = concat("guide/", size, "/tam_in_place");
    for (const std::string_view way : bench::cosine_ways()) {
      const std::string name(way);
      const bool ours = !name.starts_with("aten");
      add(cosine, bench::make_cosine(name, shape), name, ours && name == "manual");
      if (ours) add(step, bench::make_tam_step(name, shape), name, true);
    }
    add(in_place, bench::make_tam_step("manual", shape, true), "in_place", true);
    add(in_place, bench::make_tam_step("manual", shape, false), "checked", false);
    // Only manual is compared with ATen's operators; the other methods are listed for reference.
    run.add(cosine);
    run.add(step);
    run.add(in_place);
  }
}

// Checks all names first, so that a wrong one does not appear after minutes of measuring.
void check_lists(const BenchOptimOptions& options, c10::Device device) {
  for (const std::string& size : options.sizes) {
    if (size != "guide") parse_sizes(size);
    HONE_CHECK(device.is_cpu() || size != "guide", "bench optim",
               "sizes as tensors x elements with a CUDA device", size);
  }
  for (const std::string& name : options.rules) {
    const bench::OptimRule rule = bench::parse_rule(name);
    HONE_CHECK(device.is_cpu() || rule.state_bits == 32, "bench optim",
               "state in fp32 with a CUDA device", name);
  }
  for (const std::string& way : options.ours) bench::check_way(way);
  for (const std::string& way : options.against) {
    if (!is_optim_peer(way)) bench::check_way(way, optim_peers());
    HONE_CHECK(!is_optim_peer(way) || !options.fresh_gradients, "bench optim",
               "LibTorch's ways alone with --fresh-gradients", way);
    HONE_CHECK(!is_optim_peer(way) || device.is_cpu(), "bench optim",
               "LibTorch's ways alone with a CUDA device", way);
  }
}

}  // namespace

std::string optim_rule_names() { return join_names(bench_rules()); }

void bench_optim(const BenchOptimOptions& options, BenchRun& run) {
  const c10::Device device = parse_device("--device", options.device);
  check_lists(options, device);
  select_device("--device", device);
  const int threads = options.threads > 0 ? options.threads : usable_cpus();
  bench::set_torch_threads(threads);
  const Place place = place_of(options, device);
  for (const std::string& size : options.sizes) {
    if (size == "guide") {
      add_guide_cases(run);
      bench::set_torch_threads(threads);
      continue;
    }
    for (const std::string& rule : options.rules) {
      add_case(place, size, rule, run);
    }
  }
}

}  // namespace hone::bench
