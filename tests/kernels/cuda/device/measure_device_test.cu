// SPDX-License-Identifier: Apache-2.0
// Bandwidth, launches and host time of every rule, mix of sizes and transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "hone/kernels/cuda/device_info.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "tests/kernels/cuda/device/device_tensors.cuh"
#include "tests/kernels/cuda/device/json_report.h"

namespace hone::kernels::cuda::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Bytes per second of a copy kernel, read and written, over 4 GiB buffers.
double copy_bandwidth() {
  static const double measured = [] {
    const auto copy = make_cuda_copy(0, Index{4} << 30);
    copy->run();
    std::vector<double> samples;
    for (int i = 0; i < 15; ++i) {
      const auto begin = Clock::now();
      copy->run();
      samples.push_back(static_cast<double>(copy->bytes_moved()) / seconds_since(begin));
    }
    return median(samples);
  }();
  return measured;
}

// Tensors whose values do not matter: zeros but for small gradients.
class PlainTensors {
 public:
  PlainTensors(const std::vector<Index>& sizes, int slots)
      : steps_(static_cast<Index>(sizes.size() * sizeof(Index))),
        correlations_(static_cast<Index>(sizes.size() * sizeof(double))),
        group_(sizes.size(), 0) {
    fill_bytes(steps_, 0);
    fill_bytes(correlations_, 0);
    for (int slot = 0; slot < slots; ++slot) {
      for (const Index n : sizes) {
        buffers_.emplace_back(n * Index{sizeof(float)});
        // 0x3a3a3a3a is about 7e-4.
        fill_bytes(buffers_.back(), slot == 1 ? 0x3a : 0);
        views_[slot].emplace_back(buffers_.back().as<void>(), Dtype::Float32, Shape{n});
      }
    }
  }
  MultiTensorLists lists() {
    return {views_[0],
            views_[1],
            views_[2],
            views_[3],
            {},
            group_,
            {steps_.as<Index>(), group_.size()}};
  }
  std::span<double> correlations() { return {correlations_.as<double>(), group_.size()}; }

 private:
  DeviceBuffer steps_, correlations_;
  std::vector<std::uint16_t> group_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<TensorView> views_[4];
};

struct Timing {
  double host_seconds = 0, eager_seconds = 0, graph_seconds = 0;
};

double time_on_device(const OwnedStream& stream, int rounds, const std::function<void()>& run) {
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> samples;
  for (int sample = 0; sample < 9; ++sample) {
    check(cudaEventRecord(begin, stream.native_stream()), "cudaEventRecord");
    for (int i = 0; i < rounds; ++i) run();
    check(cudaEventRecord(end, stream.native_stream()), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    samples.push_back(ms * 1e-3 / rounds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return median(samples);
}

// Host time to enqueue, device time with the host enqueuing, device time of a replayed graph.
Timing time_step(const OwnedStream& stream, int rounds, const std::function<void()>& step) {
  Timing timing;
  for (int i = 0; i < 3; ++i) step();
  stream.wait();
  std::vector<double> host;
  for (int i = 0; i < 25; ++i) {
    const auto begin = Clock::now();
    step();
    host.push_back(seconds_since(begin));
    stream.wait();
  }
  timing.host_seconds = median(host);
  timing.eager_seconds = time_on_device(stream, rounds, step);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamBeginCapture(stream.native_stream(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  step();
  check(cudaStreamEndCapture(stream.native_stream(), &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  timing.graph_seconds = time_on_device(stream, rounds, [&] {
    check(cudaGraphLaunch(exec, stream.native_stream()), "cudaGraphLaunch");
  });
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  return timing;
}

struct Mix {
  const char* name;
  std::vector<Index> sizes;
};

std::vector<Mix> mixes() {
  return {{"24x1048576", std::vector<Index>(24, 1048576)},
          {"2000x1024", std::vector<Index>(2000, 1024)},
          {"1x33554432", {33554432}},
          {"100x65536", std::vector<Index>(100, 65536)},
          {"1x65536", {65536}},
          {"1x1000000000", {1'000'000'000}}};
}

bool fits(const Mix& mix, int slots) {
  std::size_t free_bytes = 0, total = 0;
  check(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
  Index elements = 0;
  for (const Index n : mix.sizes) elements += n;
  return static_cast<std::size_t>(elements) * 4 * static_cast<std::size_t>(slots) <
         free_bytes / 10 * 9;
}

// `floor`: bytes per element that a step must move. Returns the report of the last step.
template <class Group>
CudaStepReport measure(const char* rule, const Group& group, const Mix& mix, int slots,
                       double floor, const CudaStepOptions& options, const char* remark = "") {
  PlainTensors tensors(mix.sizes, slots);
  std::span<double> correlation;
  if constexpr (std::is_same_v<Group, TAMGroup>) correlation = tensors.correlations();
  const OwnedStream stream;
  const auto stepper = make_cuda_stepper<Group>(tensors.lists(), options);
  CudaStepReport report;
  Index elements = 0;
  for (const Index n : mix.sizes) elements += n;
  const int rounds = elements > 100'000'000 ? 5 : 50;
  const Timing timing = time_step(stream, rounds, [&] {
    report = stepper->step({&group, 1}, correlation, {}, stream);
  });
  const double bytes = floor * static_cast<double>(elements);
  const double rate = bytes / timing.graph_seconds;
  hone::test::print_measure(hone::concat(rule, " ", mix.name, remark), name_of(report.transport),
                            {{"us", timing.graph_seconds * 1e6},
                             {"us_eager", timing.eager_seconds * 1e6},
                             {"us_host", timing.host_seconds * 1e6},
                             {"gb_per_s", rate * 1e-9},
                             {"share_of_copy", rate / copy_bandwidth()},
                             {"floor_bytes_per_param", floor},
                             {"chunk", static_cast<double>(report.chunk_elements)},
                             {"launches", static_cast<double>(report.launches)},
                             {"scalar_launches", static_cast<double>(report.scalar_launches)},
                             {"argument_bytes", static_cast<double>(report.argument_bytes)},
                             {"table_uploads", static_cast<double>(report.table_uploads)}});
  return report;
}

std::vector<Mix> fitting_mixes(int slots) {
  std::vector<Mix> fitting = mixes();
  std::erase_if(fitting, [slots](const Mix& mix) { return !fits(mix, slots); });
  return fitting;
}

// Returns how many measurements used the transport that was asked for.
template <class Group>
std::size_t measure_transports(const char* rule, const Group& group, const std::vector<Mix>& mixes,
                               int slots, double floor) {
  std::size_t as_asked = 0;
  for (const Mix& mix : mixes) {
    for (const Transport transport : kTransports) {
      const CudaStepReport report =
          measure(rule, group, mix, slots, floor, {.transport = transport});
      if (report.transport == transport && report.launches > 0) ++as_asked;
    }
  }
  return as_asked;
}

TEST(Measure, copy) {
  EXPECT_GT(copy_bandwidth(), 0);
  hone::test::print_measure("copy", "", {{"gb_per_s", copy_bandwidth() * 1e-9}});
}

TEST(Measure, adamw) {
  const auto mixes = fitting_mixes(4);
  EXPECT_EQ(measure_transports<AdamGroup>("adamw", {.weight_decay = 0.01}, mixes, 4, 28),
            mixes.size() * std::size(kTransports));
}
TEST(Measure, sgdm) {
  const auto mixes = fitting_mixes(3);
  EXPECT_EQ(measure_transports<SGDGroup>("sgdm", {.momentum = 0.9}, mixes, 3, 20),
            mixes.size() * std::size(kTransports));
}
TEST(Measure, lion) {
  const auto mixes = fitting_mixes(3);
  EXPECT_EQ(measure_transports<LionGroup>("lion", {}, mixes, 3, 20),
            mixes.size() * std::size(kTransports));
}
TEST(Measure, tam) {
  const auto mixes = fitting_mixes(3);
  EXPECT_EQ(measure_transports<TAMGroup>("tam", {}, mixes, 3, 28),
            mixes.size() * std::size(kTransports));
}
TEST(Measure, adatamw) {
  const auto mixes = fitting_mixes(4);
  const TAMGroup group{.weight_decay = 0.01, .decoupled = true};
  EXPECT_EQ(measure_transports("adatamw", group, mixes, 4, 36),
            mixes.size() * std::size(kTransports));
}

// What adaptive chunks gain.
TEST(Measure, fixed_chunks) {
  for (const Mix& mix : fitting_mixes(4)) {
    const CudaStepReport report =
        measure<AdamGroup>("adamw", {}, mix, 4, 28, {.chunk_elements = 65536}, " fixed chunk");
    EXPECT_EQ(report.chunk_elements, 65536) << mix.name;
  }
}

}  // namespace
}  // namespace hone::kernels::cuda::test
