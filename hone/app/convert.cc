// SPDX-License-Identifier: Apache-2.0
#include "hone/app/convert.h"

#include <array>

#include "hone/app/loaded_weights.h"
#include "hone/app/model_output.h"
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

using Type = std::optional<model_io::StoreType>;

void check_type(const ConvertOptions& options, ModelFormat format, Type type) {
  HONE_CHECK(format != ModelFormat::Llama2c || !type || *type == model_io::StoreType::F32,
             "convert --dtype", "f32 for llama2.c", options.dtype);
  HONE_CHECK(format != ModelFormat::HuggingFace || !type || !is_quantized(*type), "convert --dtype",
             "f32, f16 or bf16 for hf", options.dtype);
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
  Type type;
  if (!options.dtype.empty()) type = model_io::parse_store_type(options.dtype);
  const ModelOutput out(
      options.out, options.to,
      type && is_quantized(*type) ? ModelFormat::HoneArtifact : ModelFormat::HuggingFace,
      "convert");
  check_type(options, out.format(), type);
  out.check(std::array{options.in, options.tokenizer});
  const auto model = model_io::open_model_or_throw(
      options.in, {.tokenizer = options.tokenizer, .need_tokenizer = false});
  out.check(model->files());
  remove_stale_temporaries(output_target(options.out).parent_path());

  const auto tokenizer = model->tokenizer();
  if (tokenizer == nullptr && out.format() == ModelFormat::Gguf) {
    log_warning(concat(options.in.string(),
                       " has no tokenizer, so that the GGUF has none: llama.cpp does not run it "
                       "(--tokenizer adds one)"));
  }
  const model_io::WriteReport report =
      out.write({.architecture = model->architecture(),
                 .tensors = model->tensors(),
                 .tokenizer = tokenizer.get(),
                 .generation_defaults = model->generation_defaults(),
                 .file = model.get(),
                 .metadata = model->metadata()},
                type);
  Json document = {{"tensors", report.tensors},
                   {"bytes", report.bytes},
                   {"kept", kept_json(report.kept)},
                   {"in_format", name_of(model->format())},
                   {"out_format", name_of(out.format())},
                   {"out", options.out.string()},
                   {"tokenizer", nullptr},
                   {"decoded", nullptr}};
  if (tokenizer != nullptr) document["tokenizer"] = tokenizer->kind();
  if (report.decoded > 0)
    document["decoded"] = {{"matrices", report.decoded}, {"dtype", name_of(report.decoded_type)}};
  if (out.format() != ModelFormat::Llama2c) return document;
  const fs::path tokenizer_file = write_tokenizer_beside(options.out, tokenizer.get());
  if (!tokenizer_file.empty()) document["tokenizer_file"] = tokenizer_file.string();
  return document;
}

}  // namespace hone::app
