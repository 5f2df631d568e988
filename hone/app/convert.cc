// SPDX-License-Identifier: Apache-2.0
#include "hone/app/convert.h"

#include <algorithm>

#include "hone/app/loaded_weights.h"
#include "hone/core/check.h"
#include "hone/core/file_io.h"
#include "hone/core/log.h"
#include "hone/model_io/factored_config.h"
#include "hone/model_io/write_model.h"
#include "hone/text/format/tok_bin.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using model_io::ModelFormat;

enum class Target { Folder, Gguf, Llama2c };

Target choose_target(const ConvertOptions& options) {
  const std::string extension = options.out.extension().string();
  std::string to = options.to;
  if (to.empty()) to = extension == ".gguf" ? "gguf" : extension == ".bin" ? "llama2c" : "hf";
  if (to == "hf") return Target::Folder;
  if (to == "gguf") return Target::Gguf;
  if (to == "llama2c") return Target::Llama2c;
  fail_argument("convert --to", "hf, gguf or llama2c", to);
}

// Rejects outputs that would overwrite the input or anything that is not a model.
void check_output(const ConvertOptions& options, Target target) {
  const std::string out = options.out.string();
  HONE_REQUIRE(!out.empty(), "convert", "The output needs a name.");
  check_output_spares(options.out, options.in);
  check_output_spares(options.out, options.tokenizer);
  if (target == Target::Folder) return model_io::check_model_folder(options.out);
  const fs::path file = output_target(options.out);
  if (!fs::exists(file)) return;
  HONE_REQUIRE(!fs::is_directory(file), out, "The output must be a file, but this is a folder.");
  HONE_REQUIRE(model_io::is_replaceable(file), out,
               "This file is neither a GGUF nor a llama2.c model, so it is not replaced.");
}

bool is_quantized(const model_io::NamedMatrix& tensor) {
  return tensor.matrix.layout != WeightLayout::Dense;
}

// Writes tokenizer.bin next to a llama2.c model. Returns its path; empty if nothing was written.
fs::path write_tokenizer_beside(const fs::path& model, const text::Tokenizer* tokenizer) {
  const fs::path path = model.parent_path() / "tokenizer.bin";
  if (tokenizer == nullptr) return {};
  try {
    const std::string bytes = text::write_tok_bin(tokenizer->vocabulary());
    if (!fs::exists(path)) {
      write_text_file(path, bytes);
    } else {
      if (read_text_file(path) != bytes) {
        log_warning(concat(path.string(),
                           " belongs to another model and is kept: write the model to a ",
                           "folder of its own, or pass --tokenizer when using it"));
      }
      return {};
    }
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::Unsupported) throw;
    log_warning(error.what());
    return {};
  }
  return path;
}

}  // namespace

Json convert_model(const ConvertOptions& options) {
  const Target target = choose_target(options);
  std::optional<model_io::StoreType> type;
  if (!options.dtype.empty()) type = model_io::parse_store_type(options.dtype);
  HONE_CHECK(target != Target::Llama2c || !type || *type == model_io::StoreType::F32,
             "convert --dtype", "f32 for llama2.c", options.dtype);
  check_output(options, target);
  const auto model = model_io::open_model_or_throw(
      options.in, {.tokenizer = options.tokenizer, .need_tokenizer = false});
  for (const fs::path& file : model->files()) check_output_spares(options.out, file);
  remove_stale_temporaries(output_target(options.out).parent_path());

  const auto tokenizer = model->tokenizer();
  const model_io::ModelSource source{model->architecture(), model->tensors(), tokenizer.get(),
                                     model->generation_defaults(), model.get()};
  model_io::WriteReport report;
  ModelFormat format = ModelFormat::Gguf;
  fs::path tokenizer_file;
  if (target == Target::Gguf) {
    report = model_io::write_gguf(options.out, source, type);
  } else if (target == Target::Llama2c) {
    format = ModelFormat::Llama2c;
    report = model_io::write_llama2c(options.out, source);
    tokenizer_file = write_tokenizer_beside(options.out, tokenizer.get());
  } else if (type ? model_io::is_quantized(*type)
                  : std::ranges::any_of(model->tensors(), is_quantized)) {
    format = ModelFormat::HoneArtifact;
    report = model_io::write_artifact(options.out, source, type);
  } else {
    format = ModelFormat::HuggingFace;
    report = model_io::write_hugging_face(options.out, source, type);
  }
  Json document = {{"tensors", report.tensors},
                   {"bytes", report.bytes},
                   {"kept", kept_json(report.kept)},
                   {"in_format", name_of(model->format())},
                   {"out_format", name_of(format)},
                   {"out", options.out.string()},
                   {"tokenizer", nullptr}};
  if (tokenizer != nullptr) document["tokenizer"] = tokenizer->kind();
  if (!tokenizer_file.empty()) document["tokenizer_file"] = tokenizer_file.string();
  return document;
}

}  // namespace hone::app
