// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/compress/method/round_clip.h"
#include "hone/core/buffer.h"
#include "hone/model_io/model_file.h"

namespace hone::compress {

// The model that passes change: the original's tensors, borrowed from its read-only mapping, and
// the matrices that replace them. The original must outlive it and is never written.
class Model {
 public:
  explicit Model(const model_io::ModelFile& original);

  const model_io::ModelFile& original() const { return original_; }
  const std::vector<model_io::NamedMatrix>& tensors() const { return tensors_; }
  // The size of all tensors as they would be stored now.
  Index bytes() const;

  // Whether no pass has replaced tensor `at`.
  bool is_original(Index at) const;
  // Replaces tensor `at` and drops the old one.
  void replace(Index at, QuantMatrix matrix, bool act_int8);
  // A cheap copy of the current state, used to roll a pass back.
  std::vector<model_io::NamedMatrix> snapshot() const { return tensors_; }
  void restore(std::vector<model_io::NamedMatrix> tensors) { tensors_ = std::move(tensors); }

 private:
  const model_io::ModelFile& original_;
  std::vector<model_io::NamedMatrix> tensors_;
  std::vector<std::unique_ptr<QuantMatrix>> owned_;
};

// What a tensor is: the weight of a linear layer, the embedding, the head, or something else.
enum class Role { Linear, Embedding, Head, Other };
Role role_of(const model_io::NamedMatrix& tensor);

}  // namespace hone::compress
