// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "hone/core/thread/executor.h"
#include "hone/infer/model/load_type.h"
#include "hone/infer/model/packed_file.h"
#include "hone/infer/weight_options.h"
#include "hone/kernels/gemm/packed_matrix.h"
#include "hone/model_io/model_file.h"

namespace hone::infer {

// Rows of an embedding, read from the model's file one at a time.
struct EmbeddingRows {
  model_io::NamedMatrix tensor;
  LoadType type;  // that of the rows, if it is not the file's

  // out.size() == tensor.matrix.cols
  void decode(Index row, std::span<float> out) const;
};

// The type of WeightFormat.
LoadType load_type_of(WeightFormat format);

// Packs the matrices of a model one at a time: reads them from its file, quantizes them if that is
// wanted, and releases the file's pages of each, so that the peak of memory is what is packed and
// the largest tensor. With a PackedFile nothing is read or packed: matrices view its panels.
class WeightPacker {
 public:
  // All must outlive the packer; the file of the model and the packed one also outlive matrices.
  WeightPacker(const model_io::ModelFile& file, WeightFormat format, Executor& executor,
               const PackedFile* packed = nullptr);

  // `tensor` is one of the file, or a part of one under a name of its own. Throws
  // Error{CorruptFile} for weights that the format cannot represent, and if a file is truncated.
  kernels::PackedMatrix matrix(const model_io::NamedMatrix& tensor);
  // Gate and up of one layer (kernels::pack_gate_up). If their formats differ, both become f32.
  kernels::PackedMatrix gate_up(const model_io::NamedMatrix& gate, const model_io::NamedMatrix& up);
  EmbeddingRows embedding(const model_io::NamedMatrix& tensor);

  // What has been packed so far. The panels live as long as the matrices.
  std::span<const PackedEntry> entries() const { return entries_; }
  // Matrices that did not become WeightFormat, with the reason, by name.
  std::vector<model_io::KeptTensor> kept() const;

 private:
  LoadType type_of(const model_io::NamedMatrix& tensor);
  StoredMatrix describe(const model_io::NamedMatrix& tensor);
  StoredMatrix load(const model_io::NamedMatrix& tensor, Buffer& memory);
  kernels::PackedMatrix over(const std::string& name, const StoredMatrix& matrix, bool gate_up);
  kernels::PackedMatrix keep(std::string name, kernels::PackedMatrix matrix);

  const model_io::ModelFile& file_;
  LoadType type_;
  Executor& executor_;
  const PackedFile* packed_;
  std::vector<PackedEntry> entries_;
  std::map<std::string, model_io::KeptTensor> kept_;
};

}  // namespace hone::infer
