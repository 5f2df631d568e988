// SPDX-License-Identifier: Apache-2.0
// Transports, uploads and captured graphs on the device.
#include <gtest/gtest.h>

#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "tests/kernels/cuda/device/device_tensors.cuh"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels::cuda::test {
namespace {

using hone::test::same_bits;
using kernels::test::error_of;

const TensorSetOptions kAdamSlots{.second_moment = true};
const AdamGroup kAdam{.weight_decay = 0.01};

// One AdamW step by one transport with chunks of 1024; the launches it took.
Index step_adam(TensorSet& set, Transport transport) {
  DeviceTensors tensors(set, kAdamSlots);
  const OwnedStream stream;
  const auto stepper = make_cuda_stepper<AdamGroup>(
      tensors.lists(), {.transport = transport, .chunk_elements = 1024});
  const CudaStepReport report = stepper->step({&kAdam, 1}, {}, {}, stream);
  stream.wait();
  tensors.download(set);
  EXPECT_EQ(report.transport, transport);
  EXPECT_EQ(report.table_uploads, transport == Transport::DeviceTable ? 1 : 0);
  return report.launches;
}

// One below the limit of our structs, at it, above it.
TEST(DeviceTransport, all_three_are_bit_equal_around_their_limits) {
  const auto many = [](Index n) { return std::vector<Index>(static_cast<std::size_t>(n), 5); };
  const std::pair<std::vector<Index>, std::pair<Index, Index>> cases[] = {
      {many(35), {1, 1}},         {many(36), {1, 1}},           {many(37), {2, 1}},
      {many(251), {7, 1}},        {many(252), {7, 1}},          {many(253), {8, 2}},
      {{319 * 1024}, {1, 1}},     {{320 * 1024}, {1, 1}},       {{320 * 1024 + 1}, {2, 1}},
      {{1, 2238 * 1024}, {7, 1}}, {{1, 2239 * 1024}, {7, 1}},   {{1, 2239 * 1024 + 1}, {8, 2}},
      {many(2000), {56, 8}},      {{0, 3, 0, 1025, 0}, {1, 1}},
  };
  for (const auto& [sizes, launches] : cases) {
    TensorSet small(sizes, kAdamSlots), large(sizes, kAdamSlots), table(sizes, kAdamSlots);
    EXPECT_EQ(step_adam(small, Transport::StructSmall), launches.first);
    EXPECT_EQ(step_adam(large, Transport::StructLarge), launches.second);
    EXPECT_EQ(step_adam(table, Transport::DeviceTable), 1);
    EXPECT_TRUE(same_bits(small.snapshot(), large.snapshot()));
    EXPECT_TRUE(same_bits(small.snapshot(), table.snapshot()));
  }
}

TEST(DeviceTransport, a_limit_on_launches_refuses_before_anything_runs) {
  TensorSet set(std::vector<Index>(37, 5), kAdamSlots);
  DeviceTensors tensors(set, kAdamSlots);
  const auto error = error_of([&] {
    make_cuda_stepper<AdamGroup>(tensors.lists(),
                                 {.transport = Transport::StructSmall, .max_launches = 1});
  });
  EXPECT_NE(error.find("at most 1 launches"), std::string::npos) << error;
}

TEST(DeviceTransport, a_table_is_uploaded_once_and_again_when_a_gradient_moves) {
  TensorSet set({10, 20'000, 3}, kAdamSlots);
  DeviceTensors tensors(set, kAdamSlots);
  const OwnedStream stream;
  const auto stepper =
      make_cuda_stepper<AdamGroup>(tensors.lists(), {.transport = Transport::DeviceTable});
  Index uploads = 0;
  for (int i = 0; i < 101; ++i) {
    stepper->follow(tensors.lists());
    uploads += stepper->step({&kAdam, 1}, {}, {}, stream).table_uploads;
  }
  EXPECT_EQ(uploads, 1);
  DeviceBuffer moved(20'000 * 4);
  fill_bytes(moved, 0);
  tensors.views(Slot::Grad)[1].data = moved.as<void>();
  stepper->follow(tensors.lists());
  EXPECT_EQ(stepper->step({&kAdam, 1}, {}, {}, stream).table_uploads, 1);
  EXPECT_EQ(stepper->step({&kAdam, 1}, {}, {}, stream).table_uploads, 0);
  stream.wait();
}

// Two rounds of warm-up and ten steps, eager or replayed from one captured step; η halves after the
// fifth.
template <class Group>
std::vector<std::vector<float>> run_twelve(Group group, const CudaStepControl& control,
                                           Transport transport, bool captured) {
  const std::vector<Index> sizes{5000, 3, 70'000};
  const TensorSetOptions options{.second_moment = true};
  TensorSet set(sizes, options);
  DeviceTensors tensors(set, options);
  std::span<double> correlation;
  if constexpr (std::is_same_v<Group, TAMGroup>) correlation = tensors.correlations();
  const OwnedStream stream;
  const auto stepper = make_cuda_stepper<Group>(tensors.lists(), {.transport = transport});
  const auto step = [&] { stepper->step({&group, 1}, correlation, control, stream); };
  step();
  step();
  cudaGraphExec_t graph_exec = nullptr;
  if (captured) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream.native_stream(), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    step();
    check(cudaStreamEndCapture(stream.native_stream(), &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&graph_exec, graph, 0), "cudaGraphInstantiate");
    cudaGraphDestroy(graph);
  }
  for (int i = 0; i < 10; ++i) {
    if (i == 5) group.lr /= 2;
    if (captured) {
      stepper->store({&group, 1}, control, stream);
      check(cudaGraphLaunch(graph_exec, stream.native_stream()), "cudaGraphLaunch");
    } else {
      step();
    }
  }
  stream.wait();
  if (graph_exec != nullptr) cudaGraphExecDestroy(graph_exec);
  tensors.download(set);
  EXPECT_EQ(set.step, std::vector<Index>(3, 12));
  return set.snapshot();
}

TEST(DeviceGraph, ten_replays_equal_ten_eager_steps) {
  const CudaStepControl clipped{.step = {.clip_norm = 1}};
  for (const Transport transport : kTransports) {
    for (const CudaStepControl& control : {CudaStepControl{}, clipped}) {
      EXPECT_TRUE(same_bits(run_twelve<AdamGroup>({.lr = 1e-2}, control, transport, true),
                            run_twelve<AdamGroup>({.lr = 1e-2}, control, transport, false)));
      EXPECT_TRUE(same_bits(run_twelve<TAMGroup>({.lr = 1e-3}, control, transport, true),
                            run_twelve<TAMGroup>({.lr = 1e-3}, control, transport, false)));
    }
  }
}

// In this mode of capture every call that would wait for the device, or read from it, fails.
TEST(DeviceGraph, a_step_contains_no_host_synchronization) {
  TensorSet set({5000, 70'000});
  DeviceTensors tensors(set, {});
  const TAMGroup group{.weight_decay = 0.01};
  for (const CudaStepControl& control :
       {CudaStepControl{}, CudaStepControl{.step = {.clip_norm = 1, .skip_nonfinite = true}}}) {
    const OwnedStream stream;
    const auto stepper = make_cuda_stepper<TAMGroup>(tensors.lists(), {});
    stepper->step({&group, 1}, tensors.correlations(), control, stream);
    check(cudaStreamBeginCapture(stream.native_stream(), cudaStreamCaptureModeGlobal),
          "cudaStreamBeginCapture");
    EXPECT_NO_THROW(stepper->step({&group, 1}, tensors.correlations(), control, stream));
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream.native_stream(), &graph), cudaSuccess);
    cudaGraphDestroy(graph);
  }
}

TEST(DeviceGraph, a_capture_that_needs_an_upload_or_new_values_is_refused) {
  TensorSet set({5000}, kAdamSlots);
  DeviceTensors tensors(set, kAdamSlots);
  const OwnedStream stream;
  const auto stepper =
      make_cuda_stepper<AdamGroup>(tensors.lists(), {.transport = Transport::DeviceTable});
  const auto capture = [&](double lr) {
    const AdamGroup group{.lr = lr};
    check(cudaStreamBeginCapture(stream.native_stream(), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    const auto error = error_of([&] { stepper->step({&group, 1}, {}, {}, stream); });
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream.native_stream(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    return error;
  };
  EXPECT_NE(capture(0.1).find("captured"), std::string::npos);
  const AdamGroup group{.lr = 0.1};
  stepper->store({&group, 1}, {}, stream);
  EXPECT_NE(capture(0.1).find("one step before the capture"), std::string::npos);
  stepper->step({&group, 1}, {}, {}, stream);
  EXPECT_EQ(capture(0.1), "no error");
  EXPECT_NE(capture(0.2).find("captured"), std::string::npos);
  stream.wait();
}

TEST(DeviceStep, a_tensor_of_more_than_2_to_the_31_elements) {
  const Index count = (Index{1} << 31) + 7;
  std::size_t free_bytes = 0, total = 0;
  check(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
  if (free_bytes < static_cast<std::size_t>(count) * 9) GTEST_SKIP() << "not enough memory";
  DeviceBuffer param(count * 4), grad(count * 4), steps(8);
  fill_bytes(param, 0);
  fill_bytes(steps, 0);
  fill_bytes(grad, 0x3f);
  const float g = std::bit_cast<float>(0x3f3f3f3f);
  TensorView views[] = {{param.as<void>(), Dtype::Float32, Shape{count}},
                        {grad.as<void>(), Dtype::Float32, Shape{count}}};
  const std::uint16_t group_of[] = {0};
  MultiTensorLists lists;
  lists.param = {&views[0], 1};
  lists.grad = {&views[1], 1};
  lists.group = group_of;
  lists.step = {steps.as<Index>(), 1};
  const SGDGroup group{.lr = 1};
  const OwnedStream stream;
  const auto stepper = make_cuda_stepper<SGDGroup>(lists, {});
  stepper->step({&group, 1}, {}, {.step = {.skip_nonfinite = true}}, stream);
  const StepReport report = stepper->read_report(stream);
  EXPECT_NEAR(report.grad_norm / (g * std::sqrt(static_cast<double>(count))), 1, 1e-9);
  for (const Index at : {Index{0}, Index{1} << 31, count - 1}) {
    float value = 0;
    copy_bytes(&value, param.as<float>() + at, 4, cudaMemcpyDeviceToHost);
    EXPECT_EQ(value, -g) << at;
  }
}

}  // namespace
}  // namespace hone::kernels::cuda::test
