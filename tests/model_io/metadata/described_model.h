// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hone/core/file/mmap_file.h"
#include "hone/core/format/gguf.h"
#include "hone/model_io/gguf_vocabulary.h"
#include "hone/model_io/metadata/gguf_value.h"
#include "hone/model_io/write_model.h"
#include "tests/model_io/tiny_gguf.h"
#include "tests/model_io/tiny_model.h"

namespace hone::test {

inline constexpr const char* kChat =
    "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}";
inline constexpr const char* kToolChat = "{{ tools }}";

// What published GGUF files say of a model, and keys that hone has never heard of.
inline void set_description(GgufWriter& writer) {
  const auto set = [&](const char* key, GgufValueType type, const Json& value) {
    const std::string bytes = *model_io::encode_gguf_value(type, value);
    const bool is_array = value.is_array();
    writer.set_value({.key = key,
                      .type = type,
                      .is_array = is_array,
                      .count = is_array ? static_cast<Index>(value.size()) : 1,
                      .bytes = std::as_bytes(std::span(bytes))});
  };
  using enum GgufValueType;
  set("general.type", String, "model");
  set("general.name", String, "Tiny L\u00f6we 7b \"v1\"");
  set("general.organization", String, "Some Zoo");
  set("general.finetune", String, "Instruct");
  set("general.license", String, "apache-2.0");
  set("general.license.link", String, "https://example.org/LICENSE");
  set("general.languages", String, Json::array({"en", "no"}));
  set("general.tags", String, Json::array({"chat", "text-generation"}));
  set("general.description", String, "Two\nlines.");
  set("general.base_model.count", U32, 1);
  set("general.base_model.0.name", String, "Big Cat 7b");
  set("general.base_model.0.organization", String, "Zoo");
  set("general.base_model.0.repo_url", String, "https://huggingface.co/zoo/big-cat-7b");
  set("general.quantized_by", String, "nobody");
  set("general.file_type", U32, 15);
  set("general.sampling.temp", F32, static_cast<double>(0.7f));
  set("general.sampling.top_k", I32, 40);
  set("quantize.imatrix.entries_count", I32, 7);
  set("llama.rope.scaling.finetuned", Bool, false);
  set("llama.rope.scaling.type", String, "none");
  set("tokenizer.ggml.mask_token_id", U32, 5);
  set("vendor.small", F32, static_cast<double>(0.1f));
  set("vendor.list", I64, Json::array({-1, 1}));
  set("tokenizer.chat_template", String, kChat);
  set("tokenizer.chat_template.tool_use", String, kToolChat);
  set("tokenizer.chat_templates", String, Json::array({"tool_use"}));
  model_io::write_gguf_vocabulary(tiny_sentencepiece(48), 48, writer);
  writer.set_integer("tokenizer.ggml.bos_token_id", 1);
  writer.set_integer("tokenizer.ggml.eos_token_id", 2);
}

inline void write_described_gguf(const std::filesystem::path& path,
                                 const std::vector<GgufType>& types = read_only_types()) {
  write_tiny_gguf(path, types, set_description);
}

// Every key of a GGUF file: its type and value.
inline std::map<std::string, Json> keys_of(const std::filesystem::path& path) {
  const MmapFile bytes(path);
  const GgufFile file = parse_gguf(bytes.bytes(), path.string());
  std::map<std::string, Json> keys;
  for (const GgufValue& value : file.values())
    keys[std::string(value.key)] = {model_io::name_of(value.type),
                                    model_io::decode_gguf_value(value)};
  return keys;
}

inline model_io::ModelSource source_of(const model_io::ModelFile& file) {
  return {.architecture = file.architecture(),
          .tensors = file.tensors(),
          .tokenizer = file.tokenizer().get(),
          .generation_defaults = file.generation_defaults(),
          .file = &file,
          .metadata = file.metadata()};
}

}  // namespace hone::test
