// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/roof/memory_roofs.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/text_format.h"
#include "hone/kernels/roof/roof.h"

namespace hone::kernels {
namespace {

constexpr Index kGrain = Index{1} << 17;  // words; chunks of 1 MiB, half of a typical L2
constexpr Index kFmaRounds = 20'000;      // tens of microseconds
constexpr Index kUnknownCache = Index{32} << 20;

// Far above the last-level caches, but at most a quarter of the available memory.
Index roof_bytes(bool quick) {
  const Index cache = cpu_info().last_cache_bytes;
  const Index bytes = quick ? std::max(Index{256} << 20, kBeyondCaches * cache)
                            : std::max(Index{512} << 20, 2 * kBeyondCaches * cache);
  return std::min(bytes, available_memory_bytes() / 4) / 128 * 128;
}

MeasureOptions roof_options(bool quick) {
  return {.min_samples = quick ? 5 : 10,
          .max_samples = 40,
          .half_width = 0.01,
          .max_seconds = quick ? 1.0 : 4.0};
}

class StreamBuffer {
 public:
  StreamBuffer(Executor& executor, bool quick) : executor_(executor), buffer_(roof_bytes(quick)) {
    // Untouched pages all map to one page of zeros, which would stay in the caches, so they are
    // written first.
    update();
  }
  double bytes() const { return static_cast<double>(buffer_.bytes()); }

  void read() {
    executor_.parallel_for(words(), kGrain, [&](Index begin, Index end, int) {
      sink_.fetch_xor(xor_words(data() + begin, end - begin), std::memory_order_relaxed);
    });
  }
  void update() {
    executor_.parallel_for(words(), kGrain, [&](Index begin, Index end, int) {
      increment_words(data() + begin, end - begin);
    });
  }
  // Copies one half to the other.
  void copy() {
    const Index half = words() / 2;
    executor_.parallel_for(half, kGrain, [&](Index begin, Index end, int) {
      stream_copy(data() + begin, data() + half + begin, end - begin);
    });
  }

 private:
  Index words() const { return buffer_.bytes() / 8; }
  std::uint64_t* data() { return buffer_.as<std::uint64_t>(); }

  Executor& executor_;
  Buffer buffer_;
  std::atomic<std::uint64_t> sink_{0};
};

}  // namespace

MemoryProbe make_memory_probe(MemoryTraffic traffic, Executor& executor) {
  const auto stream = std::make_shared<StreamBuffer>(executor, true);
  if (traffic == MemoryTraffic::Read) {
    return {{.name = "memory read", .run = [stream] { stream->read(); }}, stream->bytes()};
  }
  return {{.name = "memory update", .run = [stream] { stream->update(); }}, 2 * stream->bytes()};
}

std::string why_no_memory_share(Index bytes, Index cache_bytes) {
  const Index cache = cache_bytes > 0 ? cache_bytes : kUnknownCache;
  if (bytes >= kBeyondCaches * cache) return {};
  return concat("no share of memory bandwidth: the ", format_bytes(bytes, ByteUnits::Binary),
                " read are less than ", kBeyondCaches, " times the last-level cache of ",
                format_bytes(cache, ByteUnits::Binary));
}

MemoryRoofs measure_memory_roofs(Executor& executor, Measurer& measurer, bool quick) {
  StreamBuffer stream(executor, quick);
  const Contestant contestants[] = {{.name = "memory read", .run = [&] { stream.read(); }},
                                    {.name = "memory copy", .run = [&] { stream.copy(); }},
                                    {.name = "memory update", .run = [&] { stream.update(); }}};
  const Measurement measurement = measurer.measure(contestants, roof_options(quick));
  const auto rate = [&](std::size_t contestant, double moved) {
    return moved / measurer.spread(measurement.seconds[contestant]).median * 1e-9;
  };
  const double size = stream.bytes();
  return {.read_gb_per_s = rate(0, size),
          .copy_gb_per_s = std::max(rate(1, size), rate(2, 2 * size))};
}

double measure_peak_gflops(Executor& executor, Measurer& measurer, bool quick) {
  const Index chunks = 64 * executor.workers();
  std::atomic<double> sum{0};
  const auto run = [&] {
    executor.parallel_for(chunks, 1, [&](Index begin, Index end, int) {
      for (Index chunk = begin; chunk < end; ++chunk) {
        sum.fetch_add(run_fma_chains(kFmaRounds).sum, std::memory_order_relaxed);
      }
    });
  };
  const Contestant fma[] = {{.name = "fma", .run = run}};
  const Measurement measurement = measurer.measure(fma, roof_options(quick));
  const double flops = static_cast<double>(chunks) * run_fma_chains(kFmaRounds).flops;
  return flops / measurer.spread(measurement.seconds[0]).median * 1e-9;
}

}  // namespace hone::kernels
