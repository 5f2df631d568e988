// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "hone/kernels/cuda/device_info.h"
#include "hone/kernels/cuda/runtime.cuh"

namespace hone::kernels {
namespace {

using cuda::check;
using cuda::DeviceBuffer;

// Moves sixteen bytes per thread and step in a grid-stride loop, so that any grid covers any
// length.
__global__ void copy_kernel(const float4* __restrict__ from, float4* __restrict__ to,
                            std::int64_t count) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    to[i] = from[i];
  }
}

constexpr int kThreads = 512;
constexpr int kBlocksPerMultiprocessor = 8;  // enough loads in flight to saturate the memory system

class KernelCopy final : public CudaCopy {
 public:
  KernelCopy(int device, int multiprocessors, std::int64_t bytes)
      : device_(device),
        blocks_(multiprocessors * kBlocksPerMultiprocessor),
        bytes_(bytes),
        from_(bytes),
        to_(bytes) {
    check(cudaMemset(from_.as<float4>(), 1, static_cast<std::size_t>(bytes)), "cudaMemset");
  }

  void run() override {
    check(cudaSetDevice(device_), "cudaSetDevice");
    copy_kernel<<<blocks_, kThreads>>>(from_.as<float4>(), to_.as<float4>(), bytes_ / 16);
    check(cudaGetLastError(), "copy_kernel");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  std::int64_t bytes_moved() const override { return 2 * bytes_; }

 private:
  int device_, blocks_;
  std::int64_t bytes_;
  DeviceBuffer from_, to_;
};

CudaDevice describe(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  CudaDevice device;
  device.name = properties.name;
  device.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  device.last_cache_bytes = properties.l2CacheSize;
  device.multiprocessors = properties.multiProcessorCount;
  device.compute_capability = 10 * properties.major + properties.minor;
  return device;
}

}  // namespace

CudaInfo query_cuda() {
  CudaInfo info;
  info.is_built = true;
  try {
    check(cudaRuntimeGetVersion(&info.runtime_version), "cudaRuntimeGetVersion");
    check(cudaDriverGetVersion(&info.driver_version), "cudaDriverGetVersion");
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    for (int i = 0; i < count; ++i) info.devices.push_back(describe(i));
    if (count == 0) info.reason = "no device";
  } catch (const std::exception& error) {
    info.devices.clear();
    info.reason =
        info.driver_version == 0 ? "no device: the CUDA driver is not installed" : error.what();
  }
  return info;
}

std::unique_ptr<CudaCopy> make_cuda_copy(int device, std::int64_t bytes) {
  check(cudaSetDevice(device), "cudaSetDevice");
  std::size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  const std::int64_t limit = static_cast<std::int64_t>(free_bytes) / 3;
  return std::make_unique<KernelCopy>(device, describe(device).multiprocessors,
                                      std::min(bytes, limit) / 16 * 16);
}

}  // namespace hone::kernels
