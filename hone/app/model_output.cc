// SPDX-License-Identifier: Apache-2.0
#include "hone/app/model_output.h"

#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using model_io::ModelFormat;

}  // namespace

ModelOutput::ModelOutput(fs::path path, std::string_view to, ModelFormat folder,
                         std::string_view op, bool bin)
    : path_(std::move(path)), format_(folder) {
  HONE_REQUIRE(!path_.empty(), op, "The output needs a name.");
  const std::string extension = path_.extension().string();
  if (to.empty()) {
    if (extension == ".gguf") format_ = ModelFormat::Gguf;
    if (extension == ".bin" && bin) format_ = ModelFormat::Llama2c;
  } else if (to == "hf") {
    format_ = ModelFormat::HuggingFace;
  } else if (to == "hone") {
    format_ = ModelFormat::HoneArtifact;
  } else if (to == "gguf") {
    format_ = ModelFormat::Gguf;
  } else if (to == "llama2c" && bin) {
    format_ = ModelFormat::Llama2c;
  } else {
    fail_argument(concat(op, " --to"), bin ? "hf, hone, gguf or llama2c" : "hf, hone or gguf", to);
  }
}

bool ModelOutput::is_folder() const {
  return format_ == ModelFormat::HuggingFace || format_ == ModelFormat::HoneArtifact;
}

ModelOutput ModelOutput::at(fs::path path) const {
  ModelOutput other = *this;
  other.path_ = std::move(path);
  return other;
}

void ModelOutput::check(std::span<const fs::path> inputs) const {
  for (const fs::path& input : inputs) check_output_spares(path_, input);
  is_folder() ? model_io::check_model_folder(path_) : model_io::check_model_file(path_);
}

model_io::WriteReport ModelOutput::write(const model_io::ModelSource& source,
                                         std::optional<model_io::StoreType> type,
                                         const model_io::ArtifactNotes& notes) const {
  switch (format_) {
    case ModelFormat::Gguf:
      return model_io::write_gguf(path_, source, type);
    case ModelFormat::Llama2c:
      return model_io::write_llama2c(path_, source);
    case ModelFormat::HoneArtifact:
      return model_io::write_artifact(path_, source, type, notes);
    case ModelFormat::HuggingFace:
      break;
  }
  return model_io::write_hugging_face(path_, source, type);
}

}  // namespace hone::app
