// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/file/mmap_file.h"
#include "hone/model_io/model_file.h"

namespace hone::model_io {

// Filled in by every reader: the parts of a ModelFile and the memory of its tensors.
class LoadedModel final : public ModelFile {
 public:
  ModelFormat format() const override { return model_format; }
  const Architecture& architecture() const override { return arch; }
  std::shared_ptr<const text::Tokenizer> tokenizer() const override { return vocabulary; }
  const std::vector<NamedMatrix>& tensors() const override { return matrices; }
  Index file_bytes() const override { return bytes; }
  std::vector<std::filesystem::path> files() const override;
  const Json& generation_defaults() const override { return generation; }
  const ModelMetadata& metadata() const override { return about; }
  void drop_pages(const NamedMatrix& tensor) const override;
  bool is_damaged() const override;
  void check_intact() const override;
  std::string identity() const override;

  // Checks the architecture, that `matrices` are exactly its tensors (tensor_plan.h) with the right
  // shapes and supported dtypes, and that the tokenizer fits the embedding.
  void finish(const std::string& where);
  // Leaves out added tokens behind the rows of the embedding, which some published models list.
  // Throws Error{CorruptFile} if other tokens lie there.
  void fit_vocabulary(const std::string& where);

  ModelFormat model_format = ModelFormat::HuggingFace;
  Architecture arch;
  std::shared_ptr<const text::Tokenizer> vocabulary;
  std::vector<NamedMatrix> matrices;
  Index bytes = 0;
  Json generation = Json::object();
  ModelMetadata about;
  std::vector<MmapFile> mappings;
  std::vector<Buffer> owned;  // tensors that had to be converted
};

// One opener per format. `path` is the folder or file.
std::unique_ptr<LoadedModel> open_hugging_face(const std::filesystem::path& path,
                                               const OpenOptions& options);
std::unique_ptr<LoadedModel> open_gguf(const std::filesystem::path& path,
                                       const OpenOptions& options);
std::unique_ptr<LoadedModel> open_llama2c(const std::filesystem::path& path,
                                          const OpenOptions& options);

}  // namespace hone::model_io
