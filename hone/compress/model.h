// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/compress/method/round_clip.h"
#include "hone/core/buffer.h"
#include "hone/model_io/model_file.h"

namespace hone::compress {

// What passes work on: the original's tensors, borrowed from its read-only mapping, and the
// matrices that passes put in their place. The original outlives it and is never written.
class Model {
 public:
  explicit Model(const model_io::ModelFile& original);

  const model_io::ModelFile& original() const { return original_; }
  const std::vector<model_io::NamedMatrix>& tensors() const { return tensors_; }
  // Bytes of all tensors as they would be stored now.
  Index bytes() const;

  // Replaces tensor `at`; the old one is dropped.
  void replace(Index at, QuantMatrix matrix, bool act_int8);
  // A cheap copy of the current state, for rolling a pass back.
  std::vector<model_io::NamedMatrix> snapshot() const { return tensors_; }
  void restore(std::vector<model_io::NamedMatrix> tensors) { tensors_ = std::move(tensors); }

 private:
  const model_io::ModelFile& original_;
  std::vector<model_io::NamedMatrix> tensors_;
  std::vector<std::unique_ptr<QuantMatrix>> owned_;
};

// Has this tensor the role of a linear layer's weight, the embedding, the head, or none of them?
enum class Role { Linear, Embedding, Head, Other };
Role role_of(const model_io::NamedMatrix& tensor);

}  // namespace hone::compress
