// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/format/gguf.h"

namespace hone::model_io {

// Limits on what is carried: of one entry or template in the encoding of GGUF, of all together, and
// on how many there are.
inline constexpr std::size_t kMostEntryBytes = std::size_t{1} << 20,
                             kMostMetadataBytes = std::size_t{4} << 20, kMostEntries = 1024;

// The template of a chat in Jinja. A model may have several, with names.
struct ChatTemplate {
  std::string name, text;
};
inline constexpr std::string_view kDefaultTemplate = "default";

// A key of GGUF, whatever the format it was read from, with its value: a number, a boolean, a
// string, or an array of these.
struct MetadataEntry {
  std::string key;                             // "general.license"
  GgufValueType type = GgufValueType::String;  // of the elements of an array
  Json value;
  bool is_known = false;  // Architecture, Vocabulary or the sampling defaults say the same
};

// What a model says of itself besides its architecture, weights and vocabulary. Every reader fills
// it, and every writer writes it as far as its format has a place for it. All text is UTF-8.
class ModelMetadata {
 public:
  const std::vector<ChatTemplate>& chat_templates() const { return templates_; }
  const std::vector<MetadataEntry>& entries() const { return entries_; }
  // The README.md of a folder, empty if there was none.
  const std::string& card() const { return card_; }

  const MetadataEntry* find(std::string_view key) const;  // null if absent
  // The value of a string; empty if the key is absent or of another kind.
  std::string text(std::string_view key) const;
  // Null if there is none.
  const std::string* chat_template(std::string_view name = kDefaultTemplate) const;

  // These replace what has the same key or name. What is beyond a limit, is no UTF-8 or no value of
  // its type is left out, with a warning that names `where`.
  void set(MetadataEntry entry, std::string_view where);
  void set(const GgufValue& value, bool is_known, std::string_view where);
  void set_string(std::string_view key, std::string_view value, std::string_view where);
  void set_chat_template(std::string_view name, std::string_view text, std::string_view where);
  // Another tokenizer replaces the model's: drops the keys of the old one, and its templates if the
  // new one has any, which are moved from `other`.
  void replace_tokenizer(ModelMetadata& other);
  void set_card(std::string_view text, std::string_view where);

 private:
  // Whether so many more bytes may be carried; warns once if not.
  bool take(std::size_t bytes, std::string_view what, std::string_view where);
  void put(MetadataEntry entry);

  std::vector<ChatTemplate> templates_;
  std::vector<MetadataEntry> entries_;
  std::string card_;
  std::size_t bytes_ = 0;
  bool has_warned_ = false;
};

}  // namespace hone::model_io
