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
  int multiprocessors = 0;
  int compute_capability = 0;  // 90 = 9.0
};

struct CudaInfo {
  bool is_built = false;    // this build holds CUDA kernels
  int driver_version = 0;   // newest runtime the driver serves, 13000 = 13.0; 0: no driver
  int runtime_version = 0;  // the runtime in this build; 0 without one
  std::string reason;       // why `devices` is empty
  std::vector<CudaDevice> devices;
};

// Never fails: what is wrong stands in `reason`.
CudaInfo query_cuda();

// Two buffers on a device and a kernel that copies one onto the other.
class CudaCopy {
 public:
  virtual ~CudaCopy() = default;
  virtual void run() = 0;                        // returns when the copy is done
  virtual std::int64_t bytes_moved() const = 0;  // read and written by one run()
};
// At most `bytes` per buffer, less where memory is short. Throws std::runtime_error naming the CUDA
// call that failed, also in a build without CUDA.
std::unique_ptr<CudaCopy> make_cuda_copy(int device, std::int64_t bytes);

}  // namespace hone::kernels
