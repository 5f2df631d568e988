// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hone::kernels {

struct CudaDevice {
  std::string name;
  std::int64_t memory_bytes = 0;
  std::int64_t last_cache_bytes = 0;
  int multiprocessors = 0;
  int compute_capability = 0;  // 90 means 9.0
};

struct CudaInfo {
  bool is_built = false;  // whether this build has CUDA kernels
  int driver_version =
      0;  // newest runtime that the driver supports, 13000 means 13.0; 0 if no driver
  int runtime_version = 0;  // the runtime of this build; 0 if none
  std::string reason;       // why `devices` is empty
  std::vector<CudaDevice> devices;
};

// Never throws; `reason` describes what is wrong.
CudaInfo query_cuda();

// Two buffers on a device and a kernel that copies one to the other.
class CudaCopy {
 public:
  virtual ~CudaCopy() = default;
  virtual void run() = 0;                        // returns after the copy is complete
  virtual std::int64_t bytes_moved() const = 0;  // read and written by one run()
};
// Allocates at most `bytes` per buffer, less if memory is short. Throws std::runtime_error that
// names the CUDA call that failed. Always throws in a build without CUDA.
std::unique_ptr<CudaCopy> make_cuda_copy(int device, std::int64_t bytes);

}  // namespace hone::kernels
