// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/metadata/model_metadata.h"

#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/names.h"
#include "hone/model_io/metadata/gguf_value.h"
#include "hone/text/unicode/utf8.h"

namespace hone::model_io {
namespace {

bool is_key(std::string_view key) { return !key.empty() && text::is_valid_utf8(key); }

void warn_of_value(std::string_view key, std::string_view where) {
  log_warning(concat(where, ": ", quote_name(key),
                     " is left out: its value is not of its type, or no UTF-8."));
}

}  // namespace

const MetadataEntry* ModelMetadata::find(std::string_view key) const {
  const auto at = std::ranges::find(entries_, key, &MetadataEntry::key);
  return at == entries_.end() ? nullptr : &*at;
}

std::string ModelMetadata::text(std::string_view key) const {
  const MetadataEntry* entry = find(key);
  return entry != nullptr && entry->value.is_string() ? entry->value.get<std::string>() : "";
}

const std::string* ModelMetadata::chat_template(std::string_view name) const {
  const auto at = std::ranges::find(templates_, name, &ChatTemplate::name);
  return at == templates_.end() ? nullptr : &at->text;
}

bool ModelMetadata::take(std::size_t bytes, std::string_view what, std::string_view where) {
  const bool fits = bytes <= kMostEntryBytes && bytes_ + bytes <= kMostMetadataBytes &&
                    entries_.size() + templates_.size() < kMostEntries;
  if (fits) {
    bytes_ += bytes;
  } else if (!has_warned_) {
    log_warning(concat(where, ": ", quote_name(what), " is left out: more than ", kMostEntryBytes,
                       " bytes, or too much metadata before it."));
    has_warned_ = true;
  }
  return fits;
}

void ModelMetadata::put(MetadataEntry entry) {
  const auto at = std::ranges::find(entries_, entry.key, &MetadataEntry::key);
  if (at == entries_.end()) {
    entries_.push_back(std::move(entry));
  } else {
    *at = std::move(entry);
  }
}

void ModelMetadata::set(MetadataEntry entry, std::string_view where) {
  const auto bytes = encode_gguf_value(entry.type, entry.value);
  if (!bytes || !is_key(entry.key)) {
    warn_of_value(entry.key, where);
  } else if (take(entry.key.size() + bytes->size(), entry.key, where)) {
    put(std::move(entry));
  }
}

void ModelMetadata::set(const GgufValue& value, bool is_known, std::string_view where) {
  if (!take(value.key.size() + value.bytes.size(), value.key, where)) return;
  MetadataEntry entry{std::string(value.key), value.type, decode_gguf_value(value), is_known};
  if (!encode_gguf_value(entry.type, entry.value) || !is_key(entry.key)) {
    warn_of_value(entry.key, where);
  } else {
    put(std::move(entry));
  }
}

void ModelMetadata::set_string(std::string_view key, std::string_view value,
                               std::string_view where) {
  set({std::string(key), GgufValueType::String, std::string(value)}, where);
}

void ModelMetadata::set_chat_template(std::string_view name, std::string_view text,
                                      std::string_view where) {
  if (!text::is_valid_utf8(name) || !text::is_valid_utf8(text)) {
    log_warning(concat(where, ": A chat template is no UTF-8, so it is left out."));
    return;
  }
  if (!take(name.size() + text.size(), "chat template", where)) return;
  const auto at = std::ranges::find(templates_, name, &ChatTemplate::name);
  if (at == templates_.end()) {
    templates_.push_back({std::string(name), std::string(text)});
  } else {
    at->text = text;
  }
}

void ModelMetadata::replace_tokenizer(ModelMetadata& other) {
  std::erase_if(entries_,
                [](const MetadataEntry& entry) { return entry.key.starts_with("tokenizer."); });
  if (!other.templates_.empty()) templates_ = std::move(other.templates_);
}

void ModelMetadata::set_card(std::string_view text, std::string_view where) {
  if (!text::is_valid_utf8(text)) {
    log_warning(concat(where, ": The model card is no UTF-8, so it is left out."));
  } else if (take(text.size(), "model card", where)) {
    card_ = text;
  }
}

}  // namespace hone::model_io
