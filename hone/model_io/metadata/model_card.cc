// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/metadata/model_card.h"

#include <algorithm>
#include <array>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/model_io/metadata/front_matter.h"
#include "hone/model_io/metadata/gguf_metadata.h"

namespace hone::model_io {
namespace {

struct CardField {
  std::string_view card, gguf;
  bool is_list = false;
  std::string_view before = {}, after = {};  // other keys whose strings are joined to the list
};
// Fields of Hugging Face come first, then llama.cpp's own.
constexpr std::array<CardField, 13> kFields{{{"license", kLicenseKey},
                                             {"license_name", "general.license.name"},
                                             {"license_link", "general.license.link"},
                                             {"language", "general.languages", true, "languages"},
                                             {"tags", "general.tags", true, {}, "pipeline_tag"},
                                             {"name", kNameKey},
                                             {"author", "general.author"},
                                             {"version", "general.version"},
                                             {"organization", "general.organization"},
                                             {"description", "general.description"},
                                             {"finetune", "general.finetune"},
                                             {"basename", "general.basename"},
                                             {"size_label", "general.size_label"}}};

struct SourceField {  // a list of other repositories
  std::string_view card, gguf;
};
constexpr std::array<SourceField, 2> kSources{
    {{"base_model", "general.base_model"}, {"datasets", "general.dataset"}}};

constexpr std::string_view kHub = "https://huggingface.co/";
constexpr std::size_t kMostSources = 64;

// The strings of a value that is a string or a list of them.
std::vector<std::string> strings_of(const Json& front, std::string_view key) {
  std::vector<std::string> texts;
  const auto at = front.find(key);
  if (at == front.end()) return texts;
  const auto add = [&](const Json& one) {
    if (one.is_string()) texts.push_back(one.get<std::string>());
  };
  if (!at->is_array()) add(*at);
  if (at->is_array()) std::ranges::for_each(*at, add);
  return texts;
}

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : std::string(between)) + part;
  return text;
}

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A word in lower case gets capitals, unless it is a version ("v1.5") or begins with a digit.
std::string title_of_word(std::string word) {
  const bool is_version =
      word.size() > 1 && word[0] == 'v' &&
      std::all_of(word.begin() + 1, word.end(), [](char c) { return is_digit(c) || c == '.'; });
  if (is_version || is_digit(word[0]) || std::ranges::any_of(word, is_upper)) return word;
  bool begins = true;
  for (char& c : word) {
    if (begins && is_lower(c)) c = static_cast<char>(c - 'a' + 'A');
    begins = !is_lower(c) && !is_upper(c);
  }
  return word;
}

// "smol-lm 135M" becomes "Smol Lm 135M", as in the gguf package.
std::string title_of(std::string_view id) {
  std::string title, word;
  const auto end_word = [&] {
    if (word.empty()) return;
    title += concat(title.empty() ? "" : " ", title_of_word(std::move(word)));
    word.clear();
  };
  for (const char c : id) {
    if (c == '-' || c == ' ') {
      end_word();
    } else {
      word += c;
    }
  }
  end_word();
  return title;
}

void read_source(std::string_view id, const std::string& prefix, std::vector<MetadataEntry>& out) {
  const auto add = [&](std::string_view key, std::string value) {
    out.push_back({concat(prefix, ".", key), GgufValueType::String, std::move(value)});
  };
  const bool is_link = id.find("://") != std::string_view::npos;
  const std::string_view path = id.starts_with(kHub) ? id.substr(kHub.size()) : id;
  const std::size_t slash = path.find('/');
  if (!is_link || id.starts_with(kHub)) {
    add("name", title_of(path.substr(slash == std::string_view::npos ? 0 : slash + 1)));
    if (slash != std::string_view::npos) add("organization", title_of(path.substr(0, slash)));
  }
  if (is_link || slash != std::string_view::npos)
    add("repo_url", is_link ? std::string(id) : concat(kHub, id));
}

void read_sources(const Json& front, const SourceField& field, std::vector<MetadataEntry>& out) {
  const std::vector<std::string> ids = strings_of(front, field.card);
  const std::size_t count = std::min(ids.size(), kMostSources);
  if (count == 0) return;
  out.push_back({concat(field.gguf, ".count"), GgufValueType::U32, count});
  for (std::size_t i = 0; i < count; ++i)
    read_source(ids[i], concat(field.gguf, ".", static_cast<Index>(i)), out);
}

// The ids of all base models or data sets; none if one of them has no address.
std::vector<std::string> source_ids(const ModelMetadata& metadata, const SourceField& field) {
  std::vector<std::string> ids;
  const MetadataEntry* count = metadata.find(concat(field.gguf, ".count"));
  if (count == nullptr || !count->value.is_number_unsigned()) return {};
  const auto n = count->value.get<std::uint64_t>();
  for (std::uint64_t i = 0; i < n && n <= kMostSources; ++i) {
    const std::string url =
        metadata.text(concat(field.gguf, ".", static_cast<Index>(i), ".repo_url"));
    if (url.empty()) return {};
    const bool is_id = url.starts_with(kHub) && std::ranges::count(url, '/') == 4;
    ids.push_back(is_id ? url.substr(kHub.size()) : url);
  }
  return ids;
}

void write_list(std::string_view key, const Json& list, std::string& out) {
  out += concat(key, ":\n");
  for (const Json& one : list) out += concat("- ", one.dump(), "\n");
}

// A string of one line. JSON spells it as YAML does.
bool is_line(const Json& value) {
  return value.is_string() && escape_controls(value.get_ref<const std::string&>()) ==
                                  value.get_ref<const std::string&>();
}

bool is_line_list(const Json& value) {
  return value.is_array() && !value.empty() && std::ranges::all_of(value, is_line);
}

}  // namespace

std::vector<MetadataEntry> read_model_card(std::string_view markdown, std::string_view where) {
  const Json front = read_front_matter(markdown, where);
  std::vector<MetadataEntry> entries;
  for (const CardField& field : kFields) {
    std::vector<std::string> texts;
    for (const std::string_view key : {field.before, field.card, field.after}) {
      for (std::string& text : strings_of(front, key))
        if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
    }
    if (texts.empty()) continue;
    entries.push_back({std::string(field.gguf), GgufValueType::String,
                       field.is_list ? Json(texts) : Json(join(texts, ","))});
  }
  for (const SourceField& field : kSources) read_sources(front, field, entries);
  return entries;
}

std::string write_model_card(const ModelMetadata& metadata) {
  std::string front;
  for (const CardField& field : kFields) {
    const MetadataEntry* entry = metadata.find(field.gguf);
    if (entry == nullptr) continue;
    if (field.is_list && is_line_list(entry->value)) write_list(field.card, entry->value, front);
    if (!field.is_list && is_line(entry->value))
      front += concat(field.card, ": ", entry->value.dump(), "\n");
  }
  for (const SourceField& field : kSources) {
    const Json ids = source_ids(metadata, field);
    if (is_line_list(ids)) write_list(field.card, ids, front);
  }
  if (front.empty()) return "";
  const std::string name = metadata.text(kNameKey);
  return concat("---\n", front, "---\n", is_line(name) ? concat("\n# ", name, "\n") : "");
}

}  // namespace hone::model_io
