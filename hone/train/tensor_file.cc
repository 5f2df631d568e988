// SPDX-License-Identifier: Apache-2.0
#include "hone/train/tensor_file.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/safetensors.h"

namespace hone {
namespace {

// Types that weights and optimiser state come in.
constexpr std::array<std::pair<Dtype, torch::ScalarType>, 7> kTypes = {
    {{Dtype::Float32, torch::kFloat},
     {Dtype::Float64, torch::kDouble},
     {Dtype::BFloat16, torch::kBFloat16},
     {Dtype::Float16, torch::kHalf},
     {Dtype::Int64, torch::kLong},
     {Dtype::Int8, torch::kChar},
     {Dtype::UInt8, torch::kByte}}};

Dtype dtype_of(const NamedTensor& tensor) {
  for (const auto& [dtype, scalar] : kTypes) {
    if (scalar == tensor.value.scalar_type()) return dtype;
  }
  fail_unsupported(tensor.name, "f32, f64, bf16, f16, i64, i8 or u8",
                   at::toString(tensor.value.scalar_type()));
}

std::span<const std::byte> bytes_of(const torch::Tensor& contiguous) {
  return {static_cast<const std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

}  // namespace

void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<SafetensorsWriter::Entry> plan;
  for (const NamedTensor& tensor : tensors) {
    const auto sizes = tensor.value.sizes();
    const std::vector<Index> dims(sizes.begin(), sizes.end());
    plan.push_back({tensor.name, dtype_of(tensor), Shape(dims)});
  }
  SafetensorsWriter writer(path, plan);
  for (const NamedTensor& tensor : tensors) writer.write(bytes_of(tensor.value.contiguous()));
  writer.commit();
}

std::vector<NamedTensor> read_tensors(const MmapFile& file) {
  std::vector<NamedTensor> out;
  for (const SafetensorsTensor& stored :
       parse_safetensors(file.bytes(), file.path().string()).tensors) {
    const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](const auto& pair) { return pair.first == stored.dtype; });
    if (type == kTypes.end()) {
      fail_corrupt(file.path().string(), "f32, f64, bf16, f16, i64, i8 or u8",
                   safetensors_name_of(stored.dtype));
    }
    const auto dims = stored.shape.dims();
    const torch::Tensor value = at::empty(at::IntArrayRef(dims.data(), dims.size()),
                                          at::TensorOptions().dtype(type->second));
    if (!stored.bytes.empty()) {
      std::memcpy(value.data_ptr(), stored.bytes.data(), stored.bytes.size());
    }
    out.push_back({stored.name, value});
  }
  return out;
}

}  // namespace hone
