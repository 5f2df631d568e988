// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hone/compress/format/weight_format.h"
#include "hone/model_io/model_file.h"

namespace hone::compress {

// The model that passes change: the original's tensors, borrowed from its read-only mapping, and
// the matrices that replace them. The original must outlive it and is never written. Copies are
// cheap and share matrices, so that a pass can be rolled back.
class Model final : public model_io::ModelFile {
 public:
  explicit Model(const model_io::ModelFile& original);
  Model(const Model& other);
  Model& operator=(const Model& other);

  const model_io::ModelFile& original() const { return *original_; }
  // The size of all tensors as they would be stored now.
  Index bytes() const;

  // Whether no pass has replaced tensor `at`.
  bool is_original(Index at) const { return owners_[static_cast<std::size_t>(at)] == nullptr; }
  // Whether a pass has quantized tensor `at`.
  bool is_rounded(Index at) const {
    return !is_original(at) && owners_[static_cast<std::size_t>(at)]->is_rounded;
  }
  Index index_of(std::string_view name) const { return &tensor(name) - tensors_.data(); }
  // Tensors that `other` lacks, or has with other values; by position in tensors().
  std::vector<Index> changed_from(const Model& other) const;

  // Each of these leaves a valid model only together with the others that belong to one change.
  // Replaces tensor `at`, whose shape may change, and drops the old one.
  void replace(Index at, EncodedMatrix matrix, bool act_int8);
  void add(std::string name, EncodedMatrix matrix, bool act_int8);
  // Sets the sizes of one layer, and those of all if the layers are then alike.
  void set_widths(Index layer, Index heads, Index intermediate);
  void add_factored(model_io::FactoredLayer layer);
  // Removes a layer and moves those behind it forward. Throws Error{Unsupported} for the last
  // layer, and for models whose scores depend on the place of a layer.
  void remove_layer(Index layer);

  // ModelFile: as the original, but with the tensors as they are now.
  model_io::ModelFormat format() const override { return original_->format(); }
  const model_io::Architecture& architecture() const override { return architecture_; }
  std::shared_ptr<const text::Tokenizer> tokenizer() const override {
    return original_->tokenizer();
  }
  const std::vector<model_io::NamedMatrix>& tensors() const override { return tensors_; }
  Index file_bytes() const override { return bytes(); }
  std::vector<std::filesystem::path> files() const override { return original_->files(); }
  const Json& generation_defaults() const override { return original_->generation_defaults(); }
  const model_io::ModelMetadata& metadata() const override { return original_->metadata(); }
  void drop_pages(const model_io::NamedMatrix& tensor) const override;
  bool is_damaged() const override { return original_->is_damaged(); }
  void check_intact() const override { original_->check_intact(); }
  std::string identity() const override { return original_->identity(); }

 private:
  const model_io::ModelFile* original_;
  model_io::Architecture architecture_;
  std::vector<model_io::NamedMatrix> tensors_;
  std::vector<std::shared_ptr<const EncodedMatrix>> owners_;  // null: the original's
};

// Elements of all matrices and vectors, tied ones once.
Index parameters_of(const model_io::ModelFile& model);

// What a tensor is: the weight of a linear layer, the embedding, the head, or something else.
enum class Role { Linear, Embedding, Head, Other };
Role role_of(const model_io::NamedMatrix& tensor);

}  // namespace hone::compress
