// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/model_io/model_file.h"
#include "hone/text/tokenizer.h"

namespace hone::model_io {

// How a written tensor is stored. Q8_0 and Q4_0 are GGUF's grids; hone's artifact stores the same
// codes and scales in canonical order (int8:g32:sym:f16, int4:g32:sym:f16).
enum class StoreType { F32, F16, BF16, Q8_0, Q4_0 };
std::string_view name_of(StoreType type);           // "f32", "q4_0"
StoreType parse_store_type(std::string_view name);  // Error{InvalidArgument} lists the known ones
constexpr bool is_quantized(StoreType type) { return type >= StoreType::Q8_0; }

// A model to write. `tensors` are exactly those of the architecture, in any order, with rows of q
// and k in the order of architecture.rope.pairing; each writer permutes them to its format's order.
struct ModelSource {
  const Architecture& architecture;
  std::span<const NamedMatrix> tensors;
  const text::Tokenizer* tokenizer = nullptr;  // if null, none is written
  Json generation_defaults = Json::object();   // sampling defaults for generation_config.json
  // Where the tensors lie, or null. Nothing is written if it is damaged meanwhile.
  const ModelFile* file = nullptr;
  ModelMetadata metadata = {};  // chat templates, license, name, …; written where the format can

  void check_intact() const {
    if (file != nullptr) file->check_intact();
  }
};

struct KeptTensor {  // could not be stored in the requested type
  std::string name, dtype, reason;
};
struct WriteReport {
  Index tensors = 0;
  Index bytes = 0;  // of all files written
  std::vector<KeptTensor> kept;
  Index decoded = 0;  // matrices that were quantized and are written in `decoded_type`
  StoreType decoded_type = StoreType::F16;
};

// All writers stream, so the model is never copied in memory as a whole. An empty `type` keeps each
// tensor's own type if the format supports it. Throws Error{InvalidArgument} if tensors are missing
// or not part of the architecture, Error{CorruptFile} for values that the type cannot represent,
// Error{Unsupported} for models that the format cannot express, such as factored layers in
// GGUF and llama2.c, and Error{Io}. A failed call leaves
// nothing behind.

// Throws Error{InvalidArgument} if output_target(path) is a file or contains anything but a model
// (no config.json, folders, or files that are not part of a model), or a folder in which the
// program runs. Both folder writers call it, because they replace the whole folder; callers can
// check early, before hours of work.
void check_model_folder(const std::filesystem::path& path);
// The same for an output that is a file: throws if output_target(path) is a folder, or a file that
// is not is_replaceable().
void check_model_file(const std::filesystem::path& path);

// Writes a folder that transformers opens: config.json, generation_config.json, model.safetensors,
// tokenizer.json, tokenizer_config.json and README.md. The type is f32, f16 or bf16. Without one, a
// tensor keeps its own, and quantized matrices get that of choose_decoded_type() (write_plan.h).
WriteReport write_hugging_face(const std::filesystem::path& folder, const ModelSource& source,
                               std::optional<StoreType> type = StoreType::F32);

// Information that hone's packed artifact carries beyond the codes (docs/formats.md).
struct ArtifactNotes {
  std::string algorithm = "rtn";  // how the codes were chosen; the manifest has it per matrix
  // Further metadata: "hone.calibration", "hone.quality", "hone.source", …
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::pair<std::string, std::string>> files;  // plain name and text: "recipe.toml"
};

// Writes hone's packed artifact: a Hugging Face folder whose matrices may be quantized. Canonical
// matrices are written code for code; a quantized `type` quantizes dense ones.
WriteReport write_artifact(const std::filesystem::path& folder, const ModelSource& source,
                           std::optional<StoreType> type = std::nullopt,
                           const ArtifactNotes& notes = {});

// Writes GGUF v3 with the family's names. Vectors are f32. With a quantized type, matrices whose
// columns are not a multiple of 32 become f16. Codes on the grids of Q8_0 and Q4_0 are copied,
// never requantized. Without a type, so are blocks of the types that hone only reads.
WriteReport write_gguf(const std::filesystem::path& file, const ModelSource& source,
                       std::optional<StoreType> type = std::nullopt);

// Writes llama2.c version 0 in f32. Throws Error{Unsupported} for biases and for other RoPE
// settings or head sizes. The format keeps the tokenizer in a separate file
// (text/format/tok_bin.h).
WriteReport write_llama2c(const std::filesystem::path& file, const ModelSource& source);

}  // namespace hone::model_io
