// SPDX-License-Identifier: Apache-2.0
// What the CUDA parts say of a machine; the same questions with and without CUDA in the build.
#include "hone/kernels/cuda/device_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace hone::kernels {
namespace {

using testing::HasSubstr;

TEST(DeviceInfo, a_reason_stands_exactly_where_no_device_does) {
  const CudaInfo info = query_cuda();
  EXPECT_EQ(info.reason.empty(), !info.devices.empty()) << info.reason;
  for (const CudaDevice& device : info.devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.memory_bytes, 0);
    EXPECT_GT(device.multiprocessors, 0);
    EXPECT_GT(device.last_cache_bytes, 0);
    EXPECT_GE(device.compute_capability, 30);
  }
}

TEST(DeviceInfo, without_cuda_says_so_and_refuses_to_copy) {
  const CudaInfo info = query_cuda();
  if (info.is_built) GTEST_SKIP() << "this build has CUDA";
  EXPECT_TRUE(info.devices.empty());
  EXPECT_EQ(info.driver_version, 0);
  EXPECT_EQ(info.runtime_version, 0);
  EXPECT_THAT(info.reason, HasSubstr("HONE_WITH_CUDA=OFF"));
  try {
    make_cuda_copy(0, 1024);
    ADD_FAILURE() << "a copy without CUDA";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), info.reason);
  }
}

TEST(DeviceInfo, a_copy_moves_what_it_says_or_names_the_call_that_failed) {
  const CudaInfo info = query_cuda();
  const auto devices = static_cast<int>(info.devices.size());
  if (info.is_built) {
    try {
      make_cuda_copy(devices, 1024);
      ADD_FAILURE() << "no such device";
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("cuda"));
    }
  }
  if (devices == 0) GTEST_SKIP() << info.reason;
  const auto copy = make_cuda_copy(0, 1 << 20);
  copy->run();
  EXPECT_EQ(copy->bytes_moved(), 2 << 20);
}

}  // namespace
}  // namespace hone::kernels
