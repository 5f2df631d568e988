// SPDX-License-Identifier: Apache-2.0
#include "hone/train/tensor_file.h"

#include <ATen/Functions.h>

#include <cstring>
#include <span>

#include "hone/core/check.h"
#include "hone/train/interop.h"

namespace hone {

void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                   const SafetensorsMetadata& metadata,
                   const std::function<void(Index bytes)>& written, Sha256* hash) {
  std::vector<SafetensorsWriter::Entry> plan;
  for (const auto& [name, value] : tensors) {
    HONE_REQUIRE(value.defined(), name, "The tensor is undefined.");
    const std::span<const Index> sizes(value.sizes().data(), value.sizes().size());
    plan.push_back({name, dtype_of(value.scalar_type(), name), Shape(sizes)});
  }
  SafetensorsWriter writer(path, plan, metadata, hash);
  for (const NamedTensor& named : tensors) {
    const torch::Tensor dense = named.value.detach().to(at::kCPU).contiguous();
    writer.write(tensor_bytes(dense));
    if (written) written(static_cast<Index>(dense.nbytes()));
  }
  writer.commit();
}

std::vector<NamedTensor> copy_tensors(const SafetensorsFile& file) {
  std::vector<NamedTensor> out;
  for (const SafetensorsTensor& stored : file.tensors) {
    const auto dims = stored.shape.dims();
    const torch::Tensor value = at::empty(at::IntArrayRef(dims.data(), dims.size()),
                                          at::TensorOptions(scalar_type_of(stored.dtype)));
    if (!stored.bytes.empty()) {
      std::memcpy(value.data_ptr(), stored.bytes.data(), stored.bytes.size());
    }
    out.push_back({stored.name, value});
  }
  return out;
}

std::vector<NamedTensor> read_tensors(const MmapFile& file) {
  std::vector<NamedTensor> out =
      copy_tensors(parse_safetensors(file.bytes(), file.path().string()));
  file.check_intact();
  return out;
}

}  // namespace hone
