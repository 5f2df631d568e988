// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/metadata/hf_metadata.h"

#include <algorithm>
#include <optional>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/model_io/metadata/gguf_metadata.h"
#include "hone/model_io/metadata/gguf_value.h"
#include "hone/model_io/metadata/model_card.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;

constexpr const char *kCard = "README.md", *kDefaultFile = "chat_template.jinja",
                     *kFurther = "additional_chat_templates",
                     *kTokenizerConfig = "tokenizer_config.json";

// Empty, with a warning if the file is there, if it cannot be read.
std::optional<std::string> read_optional(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  try {
    return read_text_file(file, kMostEntryBytes);
  } catch (const Error& error) {
    log_warning(error.what());
    return std::nullopt;
  }
}

void read_template_files(const fs::path& folder, ModelMetadata& out) {
  const auto add = [&](const fs::path& file, const std::string& name) {
    if (const auto text = read_optional(file)) out.set_chat_template(name, *text, file.string());
  };
  add(folder / kDefaultFile, std::string(kDefaultTemplate));
  std::error_code ignored;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder / kFurther, ignored))
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  std::ranges::sort(files);
  for (const fs::path& file : files) add(file, file.stem().string());
}

// Older folders have a string here, or a list of {name, template}.
void read_template_value(const Json& value, const std::string& where, ModelMetadata& out) {
  if (value.is_string())
    return out.set_chat_template(kDefaultTemplate, value.get_ref<const std::string&>(), where);
  if (!value.is_array()) return;
  for (const Json& one : value) {
    if (!one.is_object()) continue;
    const auto name = one.find("name"), text = one.find("template");
    if (name == one.end() || text == one.end() || !name->is_string() || !text->is_string())
      continue;
    out.set_chat_template(name->get_ref<const std::string&>(), text->get_ref<const std::string&>(),
                          where);
  }
}

std::optional<MetadataEntry> read_kept(const std::string& key, const Json& json) {
  if (!json.is_object() || !json.contains("type") || !json.contains("value")) return std::nullopt;
  const Json& name = json["type"];
  const auto type = find_value_type(name.is_string() ? name.get<std::string>() : "");
  if (!type) return std::nullopt;
  return MetadataEntry{key, *type, json["value"]};
}

void read_gguf_metadata_value(const Json& config, const std::string& where, ModelMetadata& out) {
  const auto kept = config.find(kGgufMetadata);
  if (kept == config.end() || !kept->is_object()) return;
  for (const auto& [key, json] : kept->items()) {
    if (auto entry = read_kept(key, json)) {
      out.set(std::move(*entry), where);
    } else {
      log_warning(concat(where, ": ", kGgufMetadata, " has no type and value for a key."));
    }
  }
}

}  // namespace

void read_hf_chat_templates(const fs::path& folder, ModelMetadata& out) {
  read_template_files(folder, out);
  const fs::path file = folder / kTokenizerConfig;
  std::error_code ignored;
  if (!out.chat_templates().empty() || !fs::is_regular_file(file, ignored)) return;
  try {
    const Json config = read_json_file(file);
    if (config.is_object() && config.contains("chat_template"))
      read_template_value(config["chat_template"], file.string(), out);
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

ModelMetadata read_hf_metadata(const fs::path& folder, const Json& config) {
  ModelMetadata metadata;
  read_hf_chat_templates(folder, metadata);
  if (const auto card = read_optional(folder / kCard)) {
    const std::string where = (folder / kCard).string();
    metadata.set_card(*card, where);
    for (MetadataEntry& entry : read_model_card(metadata.card(), where))
      metadata.set(std::move(entry), where);
  }
  read_gguf_metadata_value(config, (folder / "config.json").string(), metadata);
  return metadata;
}

Json chat_template_value(const ModelMetadata& metadata) {
  const auto& templates = metadata.chat_templates();
  if (templates.empty()) return nullptr;
  if (templates.size() == 1 && templates.front().name == kDefaultTemplate)
    return templates.front().text;
  Json list = Json::array();
  for (const auto& [name, text] : templates) list.push_back({{"name", name}, {"template", text}});
  return list;
}

std::string card_of(const ModelMetadata& metadata) {
  return metadata.card().empty() ? write_model_card(metadata) : metadata.card();
}

Json gguf_metadata_value(const ModelMetadata& metadata, const std::string& card) {
  ModelMetadata in_card;
  for (MetadataEntry& entry : read_model_card(card, kCard)) in_card.set(std::move(entry), kCard);
  Json kept = Json::object();
  for (const auto& [key, type, value, is_known] : metadata.entries()) {
    const MetadataEntry* written = in_card.find(key);
    const bool is_in_card = written != nullptr && written->type == type && written->value == value;
    if (is_known || is_in_card || tells_of_types(key)) continue;
    kept[key] = {{"type", name_of(type)}, {"value", value}};
  }
  return kept;
}

}  // namespace hone::model_io
