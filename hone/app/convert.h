// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hone/core/file/json_io.h"

namespace hone::app {

struct ConvertOptions {
  std::filesystem::path in, out;
  std::string dtype;  // f32|f16|bf16|q8_0|q4_0; if empty, each tensor keeps its type
  std::string to;     // hf|hone|gguf|llama2c; if empty, chosen by the name of `out` and the type
  std::filesystem::path tokenizer;  // used if the input has none
};

// Writes the model in another format and returns the document of `hone convert --json`: tensors,
// bytes, kept[]{name,dtype,reason}, in_format, out_format, out, tokenizer (its kind or null),
// decoded{matrices,dtype} (quantized matrices that were written as floats, or null).
// A folder is a Hugging Face folder or, with a quantized dtype or "hone", hone's packed artifact.
// For llama2.c, a tokenizer that its format can represent is written to tokenizer.bin next to the
// model, unless that file exists.
Json convert_model(const ConvertOptions& options);

}  // namespace hone::app
