// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/weight_packer.h"

#include <utility>

#include "hone/core/buffer.h"
#include "hone/core/check.h"

namespace hone::infer {
namespace {

using kernels::PackedMatrix;
using model_io::KeptTensor;
using model_io::NamedMatrix;

bool same_format(const StoredMatrix& a, const StoredMatrix& b) {
  return a.layout == b.layout && a.dtype == b.dtype && a.block_type == b.block_type &&
         a.quant.spec == b.quant.spec && a.act_int8 == b.act_int8;
}

StoredMatrix as_f32(const StoredMatrix& matrix) {
  StoredMatrix wide;
  wide.rows = matrix.rows;
  wide.cols = matrix.cols;
  return wide;
}

StoredMatrix widen(const StoredMatrix& matrix, Buffer& memory) {
  memory = Buffer(matrix.rows * matrix.cols * static_cast<Index>(sizeof(float)));
  decode(matrix, {memory.as<float>(), static_cast<std::size_t>(matrix.rows * matrix.cols)});
  StoredMatrix wide = as_f32(matrix);
  wide.bytes = memory.span();
  return wide;
}

}  // namespace

void EmbeddingRows::decode(Index row, std::span<float> out) const {
  if (!type) return decode_row(tensor.matrix, row, out);
  decode_row_on_load(tensor, *type, row, out);
}

LoadType load_type_of(WeightFormat format) {
  if (format == WeightFormat::File) return std::nullopt;
  return format == WeightFormat::Q8 ? model_io::StoreType::Q8_0 : model_io::StoreType::Q4_0;
}

WeightPacker::WeightPacker(const model_io::ModelFile& file, WeightFormat format, Executor& executor,
                           const PackedFile* packed)
    : file_(file), type_(load_type_of(format)), executor_(executor), packed_(packed) {}

PackedMatrix WeightPacker::matrix(const NamedMatrix& tensor) {
  if (packed_ != nullptr) return over(tensor.name, describe(tensor), false);
  Buffer memory;
  PackedMatrix packed = kernels::pack(load(tensor, memory), executor_);
  file_.drop_pages(tensor);
  return keep(tensor.name, std::move(packed));
}

PackedMatrix WeightPacker::gate_up(const NamedMatrix& gate, const NamedMatrix& up) {
  const std::string name = concat(gate.name, " + ", up.name);
  const bool same = same_format(describe(gate), describe(up));
  if (packed_ != nullptr) return over(name, same ? describe(gate) : as_f32(gate.matrix), true);
  Buffer gate_memory, up_memory, wide_gate, wide_up;
  StoredMatrix gate_matrix = load(gate, gate_memory), up_matrix = load(up, up_memory);
  if (!same) {
    gate_matrix = widen(gate_matrix, wide_gate);
    up_matrix = widen(up_matrix, wide_up);
  }
  PackedMatrix packed = kernels::pack_gate_up(gate_matrix, up_matrix, executor_, [&] {
    file_.drop_pages(gate);
    gate_memory = Buffer();
    wide_gate = Buffer();
  });
  file_.drop_pages(up);
  return keep(name, std::move(packed));
}

EmbeddingRows WeightPacker::embedding(const NamedMatrix& tensor) {
  return {.tensor = tensor, .type = type_of(tensor)};
}

std::vector<KeptTensor> WeightPacker::kept() const {
  std::vector<KeptTensor> out;
  for (const auto& [name, tensor] : kept_) out.push_back(tensor);
  return out;
}

LoadType WeightPacker::type_of(const NamedMatrix& tensor) {
  std::vector<KeptTensor> kept;
  const LoadType type = type_on_load(tensor, type_, kept);
  for (KeptTensor& one : kept) kept_.insert_or_assign(tensor.name, std::move(one));
  return type;
}

// The matrix that is packed; its bytes only if they are those of the file.
StoredMatrix WeightPacker::describe(const NamedMatrix& tensor) {
  const LoadType type = type_of(tensor);
  return type ? describe_on_load(tensor.matrix, *type) : tensor.matrix;
}

StoredMatrix WeightPacker::load(const NamedMatrix& tensor, Buffer& memory) {
  const LoadType type = type_of(tensor);
  if (!type) return tensor.matrix;
  return encode_on_load(file_, tensor, *type, executor_, memory);
}

PackedMatrix WeightPacker::over(const std::string& name, const StoredMatrix& matrix, bool gate_up) {
  return PackedMatrix::over(matrix, gate_up,
                            packed_->panels(name, PackedMatrix::packed_bytes(matrix, gate_up)));
}

PackedMatrix WeightPacker::keep(std::string name, PackedMatrix matrix) {
  if (file_.is_damaged()) file_.check_intact();  // rather than at the end of a long file
  entries_.push_back({std::move(name), matrix.all_panels()});
  return matrix;
}

}  // namespace hone::infer
