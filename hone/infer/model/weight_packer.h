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
  LoadType type;  // type of the rows if it differs from the file's

  // out.size() == tensor.matrix.cols
  void decode(Index row, std::span<float> out) const;
};

// The LoadType for a WeightFormat.
LoadType load_type_of(WeightFormat format);

// Packs the matrices of a model one at a time: reads each from the file, quantizes it if requested,
// and releases its pages of the file. The peak memory is thus the packed matrices and the largest
// tensor. With a PackedFile, nothing is read or packed, and matrices are views of its panels.
class WeightPacker {
 public:
  // All arguments must outlive the packer. `file` and `packed` must also outlive the matrices.
  WeightPacker(const model_io::ModelFile& file, WeightFormat format, Executor& executor,
               const PackedFile* packed = nullptr);

  // `tensor` is a tensor of the file, or a part of one with its own name. Throws Error{CorruptFile}
  // for weights that the format cannot represent, and if a file is truncated.
  kernels::PackedMatrix matrix(const model_io::NamedMatrix& tensor);
  // Gate and up of one layer (kernels::pack_gate_up). If their formats differ, both become f32.
  kernels::PackedMatrix gate_up(const model_io::NamedMatrix& gate, const model_io::NamedMatrix& up);
  EmbeddingRows embedding(const model_io::NamedMatrix& tensor);

  // The panels packed so far. They live as long as the matrices.
  std::span<const PackedEntry> entries() const { return entries_; }
  // Matrices that were not converted to the WeightFormat, with the reason, ordered by name.
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
