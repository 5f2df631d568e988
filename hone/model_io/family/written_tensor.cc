// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/family/written_tensor.h"

#include <unordered_map>

#include "hone/core/check.h"
#include "hone/model_io/family/file_tensors.h"

namespace hone::model_io {
namespace {

bool is_norm(const NamedMatrix& tensor) {
  return tensor.is_vector && tensor.name.ends_with("norm.weight");
}

NamedMatrix as_matrix(const std::string& name, std::span<const float> values, Index rows) {
  NamedMatrix out;
  out.name = name;
  out.matrix.rows = rows;
  out.matrix.cols = static_cast<Index>(values.size()) / rows;
  out.matrix.bytes = std::as_bytes(values);
  return out;
}

// Encodes the stacked parts with rows and columns exchanged.
void encode_transposed(const WrittenTensor& tensor, StoreType type, ByteSink sink) {
  const Index rows = tensor.cols, cols = tensor.rows;  // of the stacked parts
  std::vector<float> values(static_cast<std::size_t>(rows * cols)),
      row(static_cast<std::size_t>(cols));
  Index at = 0;
  for (const NamedMatrix* part : tensor.parts) {
    for (Index i = 0; i < part->matrix.rows; ++i, ++at) {
      decode_row(part->matrix, i, row);
      for (Index k = 0; k < cols; ++k)
        values[static_cast<std::size_t>(k * rows + at)] = row[static_cast<std::size_t>(k)];
    }
  }
  encode_tensor(as_matrix(tensor.name, values, cols), RowOrder(), type, sink);
}

}  // namespace

std::vector<WrittenTensor> written_tensors(const ModelSource& source, FileFormat format,
                                           const std::string& where) {
  std::unordered_map<std::string_view, const NamedMatrix*> by_name;
  for (const NamedMatrix* tensor : order_tensors(source, where))
    by_name.emplace(tensor->name, tensor);
  std::vector<WrittenTensor> out;
  for (FileTensor& file : file_tensors(source.architecture, format)) {
    WrittenTensor tensor{.name = std::move(file.name),
                         .parts = {},
                         .rows = file.rows,
                         .cols = file.cols,
                         .is_vector = file.is_vector,
                         .is_transposed = file.is_transposed};
    for (const PlannedTensor& part : file.parts) tensor.parts.push_back(by_name.at(part.name));
    out.push_back(std::move(tensor));
  }
  return out;
}

void encode_part(const NamedMatrix& tensor, const StorageRules& rules, StoreType type,
                 ByteSink sink) {
  const double change = rules.architecture.norm_offset - rules.norm_offset;
  if (change == 0 || !is_norm(tensor))
    return encode_tensor(tensor, RowOrder(rules.architecture, tensor.name, rules.pairing), type,
                         sink);
  std::vector<float> values(static_cast<std::size_t>(tensor.matrix.cols));
  decode_row(tensor.matrix, 0, values);
  for (float& value : values) value = static_cast<float>(value + change);
  NamedMatrix changed = as_matrix(tensor.name, values, 1);
  changed.is_vector = true;
  encode_tensor(changed, RowOrder(), type, sink);
}

void encode_written(const WrittenTensor& tensor, const StorageRules& rules, StoreType type,
                    ByteSink sink) {
  if (tensor.is_transposed) return encode_transposed(tensor, type, sink);
  for (const NamedMatrix* part : tensor.parts) encode_part(*part, rules, type, sink);
}

}  // namespace hone::model_io
