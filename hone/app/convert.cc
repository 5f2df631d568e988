// SPDX-License-Identifier: Apache-2.0
#include "hone/app/convert.h"

#include <algorithm>

#include "hone/app/loaded_weights.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/model_io/factored_config.h"
#include "hone/model_io/write_model.h"
#include "hone/text/format/tok_bin.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using model_io::ModelFormat;

enum class Target { Folder, Artifact, Gguf, Llama2c };

using Type = std::optional<model_io::StoreType>;

Target choose_target(const ConvertOptions& options, Type type) {
  const std::string extension = options.out.extension().string(), &to = options.to;
  if (to.empty() && extension == ".gguf") return Target::Gguf;
  if (to.empty() && extension == ".bin") return Target::Llama2c;
  if (to.empty()) return type && is_quantized(*type) ? Target::Artifact : Target::Folder;
  if (to == "hf") return Target::Folder;
  if (to == "hone") return Target::Artifact;
  if (to == "gguf") return Target::Gguf;
  if (to == "llama2c") return Target::Llama2c;
  fail_argument("convert --to", "hf, hone, gguf or llama2c", to);
}

void check_type(const ConvertOptions& options, Target target, Type type) {
  HONE_CHECK(target != Target::Llama2c || !type || *type == model_io::StoreType::F32,
             "convert --dtype", "f32 for llama2.c", options.dtype);
  HONE_CHECK(target != Target::Folder || !type || !is_quantized(*type), "convert --dtype",
             "f32, f16 or bf16 for hf", options.dtype);
}

// Rejects outputs that would overwrite the input or anything that is not a model.
void check_output(const ConvertOptions& options, Target target) {
  HONE_REQUIRE(!options.out.empty(), "convert", "The output needs a name.");
  check_output_spares(options.out, options.in);
  check_output_spares(options.out, options.tokenizer);
  if (target == Target::Folder || target == Target::Artifact)
    return model_io::check_model_folder(options.out);
  model_io::check_model_file(options.out);
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

struct Written {
  ModelFormat format;
  model_io::WriteReport report;
};

Written write(const ConvertOptions& options, Target target, const model_io::ModelSource& source,
              Type type) {
  switch (target) {
    case Target::Gguf:
      return {ModelFormat::Gguf, model_io::write_gguf(options.out, source, type)};
    case Target::Llama2c:
      return {ModelFormat::Llama2c, model_io::write_llama2c(options.out, source)};
    case Target::Artifact:
      return {ModelFormat::HoneArtifact, model_io::write_artifact(options.out, source, type)};
    case Target::Folder:
      break;
  }
  return {ModelFormat::HuggingFace, model_io::write_hugging_face(options.out, source, type)};
}

}  // namespace

Json convert_model(const ConvertOptions& options) {
  Type type;
  if (!options.dtype.empty()) type = model_io::parse_store_type(options.dtype);
  const Target target = choose_target(options, type);
  check_type(options, target, type);
  check_output(options, target);
  const auto model = model_io::open_model_or_throw(
      options.in, {.tokenizer = options.tokenizer, .need_tokenizer = false});
  for (const fs::path& file : model->files()) check_output_spares(options.out, file);
  remove_stale_temporaries(output_target(options.out).parent_path());

  const auto tokenizer = model->tokenizer();
  if (tokenizer == nullptr && target == Target::Gguf) {
    log_warning(concat(options.in.string(),
                       " has no tokenizer, so that the GGUF has none: llama.cpp does not run it "
                       "(--tokenizer adds one)"));
  }
  const auto [format, report] = write(options, target,
                                      {.architecture = model->architecture(),
                                       .tensors = model->tensors(),
                                       .tokenizer = tokenizer.get(),
                                       .generation_defaults = model->generation_defaults(),
                                       .file = model.get(),
                                       .metadata = model->metadata()},
                                      type);
  Json document = {{"tensors", report.tensors},      {"bytes", report.bytes},
                   {"kept", kept_json(report.kept)}, {"in_format", name_of(model->format())},
                   {"out_format", name_of(format)},  {"out", options.out.string()},
                   {"tokenizer", nullptr},           {"decoded", nullptr}};
  if (tokenizer != nullptr) document["tokenizer"] = tokenizer->kind();
  if (report.decoded > 0)
    document["decoded"] = {{"matrices", report.decoded}, {"dtype", name_of(report.decoded_type)}};
  if (target != Target::Llama2c) return document;
  const fs::path tokenizer_file = write_tokenizer_beside(options.out, tokenizer.get());
  if (!tokenizer_file.empty()) document["tokenizer_file"] = tokenizer_file.string();
  return document;
}

}  // namespace hone::app
