// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hone/core/json_io.h"
#include "hone/core/quant_format.h"
#include "hone/model_io/architecture.h"

namespace hone::model_io {

enum class ModelFormat { HuggingFace, HoneArtifact, Gguf, Llama2c };
std::string_view name_of(ModelFormat format);  // "huggingface", "hone", "gguf", "llama2.c"

// A tensor of a model under its Hugging Face name ("model.layers.0.self_attn.q_proj.weight").
struct NamedMatrix {
  std::string name;
  StoredMatrix matrix;  // a vector (norm weight, bias) has rows = 1
  bool is_vector = false;
};

struct OpenOptions {
  std::filesystem::path tokenizer;  // overrides the one found in or beside the model
  bool need_tokenizer = true;       // false: a model without vocabulary opens, tokenizer() is null
};

// A model on disk, mapped and validated (inference.md 2.1-2.4, 2.7): every tensor the architecture
// wants is there with the exact shape, nothing unknown is. Weights stay in the mapping.
// Rows of q and k are in the order of architecture().rope.pairing.
class ModelFile {
 public:
  virtual ~ModelFile() = default;

  virtual ModelFormat format() const = 0;
  virtual const Architecture& architecture() const = 0;
  // null when absent and not needed.
  virtual std::shared_ptr<const text::Tokenizer> tokenizer() const = 0;
  // In file order.
  virtual const std::vector<NamedMatrix>& tensors() const = 0;
  // Error{CorruptFile} naming the tensor when it is missing.
  const NamedMatrix& tensor(std::string_view name) const;
  const NamedMatrix* find(std::string_view name) const;  // null when absent
  virtual Index file_bytes() const = 0;
  // Sampling defaults of generation_config.json; an empty object where there are none.
  virtual const Json& generation_defaults() const = 0;
  // The tensor's pages will not be needed soon (a packed copy exists); they come back at first
  // touch.
  virtual void drop_pages(const NamedMatrix& tensor) const = 0;

 protected:
  // Makes find() a hash look-up. Called once tensors() is final; without it find() searches.
  void index_tensors();

 private:
  std::unordered_map<std::string_view, std::size_t> by_name_;
};

// Finds the format from the path: a folder with config.json, *.gguf, llama2.c *.bin.
// Error{NotFound}, Error{CorruptFile}, Error{Unsupported}: one sentence each.
std::unique_ptr<ModelFile> open_model_or_throw(const std::filesystem::path& path,
                                               const OpenOptions& options = {});

// May a model be written over this? A GGUF or llama2.c model, an empty file, or none (whoever
// writes says what else is wrong).
bool is_replaceable(const std::filesystem::path& file);

}  // namespace hone::model_io
