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

// How a written tensor is stored. Q8_0 and Q4_0 are GGUF's grids; in hone's artifact the same codes
// and scales lie in canonical order (int8:g32:sym:f16, int4:g32:sym:f16).
enum class StoreType { F32, F16, BF16, Q8_0, Q4_0 };
std::string_view name_of(StoreType type);           // "f32", "q4_0"
StoreType parse_store_type(std::string_view name);  // Error{InvalidArgument} names the legal ones
constexpr bool is_quantized(StoreType type) { return type >= StoreType::Q8_0; }

// A model to write. `tensors` holds exactly what the architecture wants, in any order, with rows of
// q and k in the order of architecture.rope.pairing; each writer permutes them to its format's
// order.
struct ModelSource {
  const Architecture& architecture;
  std::span<const NamedMatrix> tensors;
  const text::Tokenizer* tokenizer = nullptr;  // null: none is written
  Json generation_defaults = Json::object();   // sampling defaults, generation_config.json
};

struct KeptTensor {  // could not take the type asked for
  std::string name, dtype, reason;
};
struct WriteReport {
  Index tensors = 0;
  Index bytes = 0;  // of all files written
  std::vector<KeptTensor> kept;
};

// Every writer streams: no second copy of the model in memory. `type` = nothing keeps each tensor's
// own type where the format can hold it. Errors: Error{InvalidArgument} for tensors that the
// architecture does not want or lacks and for values that the type cannot hold, Error{Unsupported}
// for what the format cannot express, Error{Io}. Nothing is left behind by a failed call.

// Folders are replaced whole, so this is asked first by both folder writers, and by whoever wants
// to know before hours of work: Error{InvalidArgument} when `folder` is a file, or holds anything
// but a model (no config.json, folders, or files that are no part of one).
void check_model_folder(const std::filesystem::path& folder);

// A folder that transformers opens: config.json, generation_config.json, model.safetensors,
// tokenizer.json, tokenizer_config.json. Type f32, f16 or bf16.
WriteReport write_hugging_face(const std::filesystem::path& folder, const ModelSource& source,
                               std::optional<StoreType> type = StoreType::F32);

// What hone's packed artifact says about itself beyond the codes (docs/formats.md).
struct ArtifactNotes {
  std::string algorithm = "rtn";  // how the codes were chosen, per matrix in the manifest
  // Further metadata: "hone.calibration", "hone.quality", "hone.source", …
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::pair<std::string, std::string>> files;  // plain name and text: "recipe.toml"
};

// hone's packed artifact: a Hugging Face folder whose matrices may be quantized. Canonical matrices
// are written as they are, code for code; a quantized `type` quantizes dense ones.
WriteReport write_artifact(const std::filesystem::path& folder, const ModelSource& source,
                           std::optional<StoreType> type = std::nullopt,
                           const ArtifactNotes& notes = {});

// GGUF v3, architecture llama. Vectors are f32; matrices whose columns are no multiple of 32 stay
// f16 where a quantized type is asked for. Codes of Q8_0 and Q4_0 grids are copied, never
// requantized.
WriteReport write_gguf(const std::filesystem::path& file, const ModelSource& source,
                       std::optional<StoreType> type = std::nullopt);

// llama2.c version 0, f32. Error{Unsupported} for biases, other RoPE settings or head sizes. The
// tokenizer has a file of its own there (text/format/tok_bin.h).
WriteReport write_llama2c(const std::filesystem::path& file, const ModelSource& source);

}  // namespace hone::model_io
