// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/metadata/gguf_metadata.h"

#include <algorithm>
#include <array>

#include "hone/core/check.h"
#include "hone/model_io/decimal.h"
#include "hone/model_io/metadata/gguf_value.h"

namespace hone::model_io {
namespace {

constexpr std::string_view kTemplate = "tokenizer.chat_template",
                           kNamedTemplate = "tokenizer.chat_template.",
                           kTemplateNames = "tokenizer.chat_templates", kTokenizer = "tokenizer.",
                           kQuantized = "quantize.";

struct SamplingKey {
  std::string_view gguf;
  const char* hugging_face;
  GgufValueType type;
};
constexpr std::array<SamplingKey, 5> kSampling{
    {{"general.sampling.temp", "temperature", GgufValueType::F32},
     {"general.sampling.top_k", "top_k", GgufValueType::I32},
     {"general.sampling.top_p", "top_p", GgufValueType::F32},
     {"general.sampling.min_p", "min_p", GgufValueType::F32},
     {"general.sampling.penalty_repeat", "repetition_penalty", GgufValueType::F32}}};

// What every writer makes itself, and what describes nothing but the file.
bool belongs_to_file(std::string_view key) {
  constexpr std::array<std::string_view, 9> kKeys{
      "general.architecture",  "general.alignment",         "general.quantization_version",
      "tokenizer.ggml.model",  "tokenizer.ggml.pre",        "tokenizer.ggml.tokens",
      "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"};
  return std::ranges::find(kKeys, key) != kKeys.end() || key.starts_with("split.") ||
         key.starts_with("hone.") || key.ends_with(".vocab_size");
}

bool is_template(std::string_view key) {
  return key == kTemplate || key == kTemplateNames || key.starts_with(kNamedTemplate);
}

// Names in keys have ASCII letters and digits only, as the gguf package writes them.
std::string name_in_key(std::string name) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  std::ranges::replace_if(
      name, [&](char c) { return !is_plain(c); }, '_');
  return name;
}

void write_chat_templates(const ModelMetadata& metadata, GgufWriter& writer) {
  std::vector<std::string> names;
  for (const auto& [name, text] : metadata.chat_templates()) {
    const std::string plain = name_in_key(name);
    const std::string key =
        name == kDefaultTemplate ? std::string(kTemplate) : concat(kNamedTemplate, plain);
    if (writer.has(key)) continue;
    writer.set_string(key, text);
    if (name != kDefaultTemplate) names.push_back(plain);
  }
  if (!names.empty()) writer.set_strings(kTemplateNames, names);
}

void write_entry(const MetadataEntry& entry, GgufWriter& writer) {
  const auto bytes = encode_gguf_value(entry.type, entry.value);
  if (!bytes || writer.has(entry.key)) return;
  const bool is_array = entry.value.is_array();
  writer.set_value({.key = entry.key,
                    .type = entry.type,
                    .is_array = is_array,
                    .count = is_array ? static_cast<Index>(entry.value.size()) : 1,
                    .bytes = std::as_bytes(std::span(*bytes))});
}

// A model that is not sampled by default has no such defaults in GGUF.
void write_sampling_defaults(const Json& defaults, GgufWriter& writer) {
  if (const auto on = defaults.find("do_sample"); on != defaults.end() && *on == false) return;
  for (const auto& [key, name, type] : kSampling) {
    if (const auto found = defaults.find(name); found != defaults.end())
      write_entry({std::string(key), type, *found}, writer);
  }
}

}  // namespace

bool tells_of_types(std::string_view key) {
  return key == kFileTypeKey || key.starts_with(kQuantized);
}

Json read_sampling_defaults(const GgufFile& file) {
  Json defaults = Json::object();
  for (const auto& [key, name, type] : kSampling) {
    const GgufValue* value = file.find(key);
    if (value == nullptr || value->is_array || value->type == GgufValueType::String) continue;
    const Json number = decode_gguf_value(*value);
    if (!number.is_number()) continue;
    defaults["do_sample"] = true;  // as llama.cpp, which always draws
    defaults[name] = value->type == GgufValueType::F32
                         ? Json(widen_decimal(static_cast<float>(number.get<double>())))
                         : number;
  }
  return defaults;
}

void read_gguf_chat_templates(const GgufFile& file, std::string_view where, ModelMetadata& out) {
  for (const GgufValue& value : file.values()) {
    if (!is_template(value.key) || value.key == kTemplateNames) continue;
    if (value.is_array || value.type != GgufValueType::String) continue;
    const bool is_named = value.key != kTemplate;
    out.set_chat_template(is_named ? value.key.substr(kNamedTemplate.size()) : kDefaultTemplate,
                          *file.string(value.key), where);
  }
}

ModelMetadata read_gguf_metadata(const GgufFile& file, bool has_tokenizer, std::string_view where) {
  ModelMetadata metadata;
  read_gguf_chat_templates(file, where, metadata);
  for (const GgufValue& value : file.values()) {
    if (belongs_to_file(value.key) || is_template(value.key)) continue;
    if (!has_tokenizer && value.key.starts_with(kTokenizer)) continue;
    metadata.set(value, file.was_read(value), where);
  }
  return metadata;
}

void write_gguf_metadata(const ModelMetadata& metadata, const Json& sampling_defaults,
                         bool keeps_types, GgufWriter& writer) {
  write_chat_templates(metadata, writer);
  write_sampling_defaults(sampling_defaults, writer);
  for (const MetadataEntry& entry : metadata.entries()) {
    if (keeps_types || !tells_of_types(entry.key)) write_entry(entry, writer);
  }
}

}  // namespace hone::model_io
