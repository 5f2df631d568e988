// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/format/quant_format.h"
#include "hone/model_io/architecture.h"
#include "hone/model_io/metadata/model_metadata.h"

namespace hone::model_io {

enum class ModelFormat { HuggingFace, HoneArtifact, Gguf, Llama2c };
std::string_view name_of(ModelFormat format);  // "huggingface", "hone", "gguf", "llama2.c"

// A tensor of a model under its Hugging Face name ("model.layers.0.self_attn.q_proj.weight").
struct NamedMatrix {
  std::string name;
  StoredMatrix matrix;  // vectors (norm weights, biases) have rows = 1
  bool is_vector = false;
};

struct OpenOptions {
  std::filesystem::path tokenizer;  // replaces the one found in or next to the model
  bool need_tokenizer = true;  // if false, models without a vocabulary open with a null tokenizer()
};

// A model on disk, mapped and validated: it has exactly the tensors of its architecture, with the
// right shapes. Weights stay in the mapping. Rows of q and k are in the order of
// architecture().rope.pairing.
class ModelFile {
 public:
  virtual ~ModelFile() = default;

  virtual ModelFormat format() const = 0;
  virtual const Architecture& architecture() const = 0;
  // Null if absent and not needed.
  virtual std::shared_ptr<const text::Tokenizer> tokenizer() const = 0;
  // In file order.
  virtual const std::vector<NamedMatrix>& tensors() const = 0;
  // Throws Error{CorruptFile} that names the tensor if it is missing.
  const NamedMatrix& tensor(std::string_view name) const;
  const NamedMatrix* find(std::string_view name) const;  // null if absent
  virtual Index file_bytes() const = 0;
  // The files that hold the weights: several for shards and for a GGUF model in parts.
  virtual std::vector<std::filesystem::path> files() const = 0;
  // The sampling defaults under the names of generation_config.json; an empty object if there are
  // none.
  virtual const Json& generation_defaults() const = 0;
  virtual const ModelMetadata& metadata() const = 0;
  // Releases the tensor's pages, for instance once a packed copy exists. The next access reads them
  // again.
  virtual void drop_pages(const NamedMatrix& tensor) const = 0;
  // Whether a part of a file that was read has gone: somebody truncated it. Costs nothing.
  virtual bool is_damaged() const = 0;
  // Throws Error{CorruptFile} that names a file that is damaged or has changed since it was opened.
  // Whoever makes something of the weights calls it before anybody relies on that.
  virtual void check_intact() const = 0;
  // Tells the weights of this model from those of others without reading them: SHA-256 over the
  // headers, sizes and times of its files. Converting and copying a file changes it, moving does
  // not.
  virtual std::string identity() const = 0;

 protected:
  // Builds the hash table for find(), which otherwise searches linearly. The names in tensors()
  // must not change afterwards.
  void index_tensors();

 private:
  std::unordered_map<std::string_view, std::size_t> by_name_;
};

// Opens a folder with config.json, a *.gguf or a llama2.c *.bin. Throws Error{NotFound},
// Error{CorruptFile} or Error{Unsupported}.
std::unique_ptr<ModelFile> open_model_or_throw(const std::filesystem::path& path,
                                               const OpenOptions& options = {});

// Whether a model may overwrite this file: true for a GGUF or llama2.c model, an empty file, and
// anything that is not a file, for which writing reports the error.
bool is_replaceable(const std::filesystem::path& file);

}  // namespace hone::model_io
