// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <string>

#include "hone/core/format/quant_format.h"
#include "hone/core/thread/executor.h"
#include "hone/train/interop.h"
#include "hone/train/nn/keeps_types.h"

namespace hone::nn {

// How a quantized layer computes.
enum class ProductKind {
  Packed,   // by the kernels of kernels/gemm, which read the codes; f32 on the CPU
  Decoded,  // by LibTorch's operators, on a copy of the weight in f32
};

// A weight matrix [rows, cols] that stays in its stored format. Its bytes are the U8 buffers
// "<name>_codes" (of f16 and bf16: the values), "<name>_scales" and "<name>_zeros" of a module, as
// far as the format has them.
class StoredWeight {
 public:
  StoredWeight() = default;
  // Copies the bytes of the matrix.
  explicit StoredWeight(const StoredMatrix& matrix);

  // Registers the buffers. The copy constructor shares them; fresh() has its own, of zeros.
  void register_in(torch::nn::Module& owner, const std::string& name);
  StoredWeight fresh() const;

  Index rows() const { return shape_.rows; }
  Index cols() const { return shape_.cols; }
  std::string format() const;  // "int8:row", "q4_0", "f16"
  // Views of the buffers, which must be on the CPU and outlive the result.
  StoredMatrix matrix() const;
  Index bytes() const;
  Index resident_bytes() const;  // with packed and decoded copies

  // The weight in f32, on the device of the codes. Kept for the next call if `keep`.
  torch::Tensor decoded(bool keep = false);

  // y [count, rows()] = x [count, cols()] · Wᵀ + bias + residual, each of contiguous f32; bias and
  // residual may be null. The first call packs the weight, and so does the first one after a load.
  void multiply(const float* x, Index count, float* y, Index y_stride, const float* bias,
                const float* residual, Executor& executor);
  // Packs the weight now, so that multiply() may then run in several threads.
  void prepare();

 private:
  struct Packed;

  std::vector<torch::Tensor> buffers() const { return {codes_, scales_, zeros_}; }

  StoredMatrix shape_;  // without its bytes
  torch::Tensor codes_, scales_, zeros_, decoded_;
  std::shared_ptr<const Packed> packed_;
  Sources decoded_sources_;
};

// Whether the packed kernels can compute with this input, without gradients.
bool takes_packed_kernels(const torch::Tensor& x);

}  // namespace hone::nn
