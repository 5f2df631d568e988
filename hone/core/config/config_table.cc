// SPDX-License-Identifier: Apache-2.0
#include "hone/core/config/config_table.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "hone/core/check.h"
#include "hone/core/config/nearest_name.h"
#include "hone/core/config/toml_limits.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/sha256.h"

namespace hone {
namespace {

constexpr std::string_view kAuto = "auto";

std::string number_text(double value) {
  std::array<char, 40> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  std::string out(text.data(), end);
  if (out.find_first_of(".en") == std::string::npos) out += ".0";
  return out;
}

// A TOML basic string.
std::string toml_string(std::string_view text) { return Json(text).dump(); }

std::string place_of(std::string_view where, const toml::source_region& region) {
  return region.begin.line == 0 ? std::string(where) : concat(where, ":", region.begin.line);
}

// "trainer" of "trainer.steps"; empty where there is no dot.
std::string_view section_of(std::string_view name) {
  return name.substr(0, name.find('.') == std::string_view::npos ? 0 : name.find('.'));
}

// "steps, seed, …" for a section; for the section "" the keys without one and "[trainer]", ….
std::string list_section(std::string_view section, const std::vector<std::string_view>& known) {
  std::vector<std::string> words;
  for (const std::string_view name : known) {
    const std::string_view own = section_of(name);
    if (!section.empty() && own != section) continue;
    std::string word(name);
    if (!own.empty()) word = section.empty() ? concat('[', own, ']') : word.substr(own.size() + 1);
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  std::string list;
  for (const std::string& word : words) list += concat(list.empty() ? "" : ", ", word);
  return list;
}

[[noreturn]] void refuse_key(const std::string& name, const std::vector<std::string_view>& known,
                             const std::string& place) {
  const std::string_view nearest = nearest_name(name, known);
  std::string hint = concat("Did you mean '", nearest, "'?");
  if (nearest.empty()) {
    const std::string neighbors = list_section(section_of(name), known);
    hint = concat("The known ones are: ", neighbors.empty() ? list_section("", known) : neighbors,
                  ".");
  }
  fail_argument(place, concat("Unknown key '", name, "'. ", hint));
}

const ConfigEntry& find_entry(const ConfigEntries& entries, const ConfigLists& lists,
                              const std::string& name, const std::string& place) {
  std::vector<std::string_view> known;
  for (const ConfigEntry& entry : entries) {
    if (entry.name == name) return entry;
    known.push_back(entry.name);
  }
  for (const ConfigList& list : lists) known.push_back(list.name);
  refuse_key(name, known, place);
}

// Each returns false for a node of another type.
bool take(const toml::node& node, Index& to) {
  const auto value = node.value_exact<std::int64_t>();
  if (value) to = *value;
  return value.has_value();
}
bool take(const toml::node& node, double& to) {
  const auto value = node.is_number() ? node.value<double>() : std::nullopt;
  if (value) to = *value;
  return value.has_value();
}
bool take(const toml::node& node, bool& to) {
  const auto value = node.value_exact<bool>();
  if (value) to = *value;
  return value.has_value();
}
bool take(const toml::node& node, std::string& to) {
  const auto value = node.value_exact<std::string>();
  if (value) to = *value;
  return value.has_value();
}
bool take(const toml::node& node, std::vector<std::string>& to) {
  const toml::array* const array = node.as_array();
  if (array == nullptr || !(array->empty() || array->is_homogeneous<std::string>())) return false;
  to.clear();
  for (const toml::node& item : *array) to.push_back(*item.value_exact<std::string>());
  return true;
}
bool take(const toml::node& node, std::optional<double>& to) {
  double number = 0;
  if (take(node, number)) return to = number, true;
  const auto word = node.value_exact<std::string>();
  if (word != kAuto) return false;
  to.reset();
  return true;
}

std::optional<Json> json_of(const toml::node& node) {
  if (const auto* table = node.as_table()) {
    Json out = Json::object();
    for (const auto& [key, item] : *table) {
      auto value = json_of(item);
      if (!value) return std::nullopt;
      out[std::string(key.str())] = *std::move(value);
    }
    return out;
  }
  if (const auto* array = node.as_array()) {
    Json out = Json::array();
    for (const toml::node& item : *array) {
      auto value = json_of(item);
      if (!value) return std::nullopt;
      out.push_back(*std::move(value));
    }
    return out;
  }
  if (const auto whole = node.value_exact<std::int64_t>()) return *whole;
  if (const auto number = node.value_exact<double>()) return *number;
  if (const auto flag = node.value_exact<bool>()) return *flag;
  if (const auto text = node.value_exact<std::string>()) return *text;
  return std::nullopt;  // a date or a time
}
bool take(const toml::node& node, ConfigValue& to) {
  auto value = json_of(node);
  if (value) to.json = *std::move(value);
  return value.has_value();
}

std::string type_name(const toml::node& node) {
  std::ostringstream name;
  name << node.type();
  return name.str();
}

void check_value(const ConfigEntry& entry, const std::string& place) {
  const std::string legal = entry.check ? entry.check() : std::string();
  if (!legal.empty()) {
    fail_argument(place, concat(legal, " for ", entry.name), value_of(entry));
  }
}

void assign(const ConfigEntry& entry, const toml::node& node, const std::string& place) {
  if (!std::visit([&](auto* field) { return take(node, *field); }, entry.field)) {
    fail_argument(place, concat("a TOML ", type_of(entry), " for ", entry.name), type_name(node));
  }
  if (auto* const* value = std::get_if<ConfigValue*>(&entry.field)) (*value)->place = place;
  check_value(entry, place);
}

bool takes_table(const ConfigEntries& entries, const std::string& name) {
  return std::ranges::any_of(entries,
                             [&](const ConfigEntry& entry) {
                               return entry.name == name &&
                                      std::holds_alternative<ConfigValue*>(entry.field);
                             }) &&
         std::ranges::none_of(entries, [inner = name + "."](const ConfigEntry& entry) {
           return entry.name.starts_with(inner);
         });
}

// Assigns what a file says.
class Reader {
 public:
  Reader(std::string_view where, const ConfigLists& lists) : where_(where), lists_(lists) {}

  // The keys that were assigned, without those of lists.
  ConfigKeys read(const ConfigEntries& entries, const toml::table& root) const {
    return read_all(entries, "", root, std::string(where_));
  }

 private:
  // The keys of one element, or all keys that are in none.
  ConfigKeys read_all(const ConfigEntries& entries, const std::string& prefix,
                      const toml::table& table, const std::string& place) const {
    ConfigKeys seen;
    read_table(entries, prefix, table, seen);
    for (const ConfigEntry& entry : entries) {
      if (entry.required && !seen.contains(entry.name)) {
        fail_argument(place, concat("The key ", entry.name, " is missing."));
      }
    }
    return seen;
  }

  void read_table(const ConfigEntries& entries, const std::string& prefix, const toml::table& table,
                  ConfigKeys& seen) const {
    for (const auto& [key, node] : table) {
      const std::string name =
          prefix.empty() ? std::string(key.str()) : concat(prefix, ".", key.str());
      const std::string place = place_of(where_, node.source());
      const auto list = std::ranges::find(lists_, name, &ConfigList::name);
      if (list != lists_.end()) {
        read_list(*list, node, place);
      } else if (node.is_table() && !takes_table(entries, name)) {
        read_table(entries, name, *node.as_table(), seen);
      } else {
        const ConfigEntry& entry = find_entry(entries, lists_, name, place);
        assign(entry, node, place);
        seen.insert(name);
      }
    }
  }

  void read_list(const ConfigList& list, const toml::node& node, const std::string& place) const {
    const toml::array* const array = node.as_array();
    if (array == nullptr || !array->is_homogeneous<toml::table>()) {
      fail_argument(place, concat("[[", list.name, "]] tables"), type_name(node));
    }
    for (const toml::node& item : *array) {
      const std::string place_of_item = place_of(where_, item.source());
      const toml::table& table = *item.as_table();
      read_all(list.append(kind_of(list, table, place_of_item)), std::string(list.name), table,
               place_of_item);
    }
  }

  std::string kind_of(const ConfigList& list, const toml::table& table,
                      const std::string& place) const {
    if (list.kind.empty()) return {};
    const std::string key = concat(list.name, ".", list.kind);
    const toml::node* const node = table.get(list.kind);
    if (node == nullptr) fail_argument(place, concat("The key ", key, " is missing."));
    const std::string kind = node->value_exact<std::string>().value_or("");
    if (std::ranges::find(list.kinds, kind) == list.kinds.end())
      fail_argument(place_of(where_, node->source()),
                    concat(join_choices(list.kinds), " for ", key), concat('"', kind, '"'));
    return kind;
  }

  std::string_view where_;
  const ConfigLists& lists_;
};

toml::table parse(std::string_view text, std::string_view where) {
  check_toml_keys(text, where);
  try {
    return toml::parse(text, where);
  } catch (const toml::parse_error& error) {
    fail_argument(place_of(where, error.source()),
                  concat("This is not valid TOML: ", error.description()));
  }
}

std::string text_of(Index value) { return concat(value); }
std::string text_of(double value) { return number_text(value); }
std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(const std::string& value) { return toml_string(value); }
std::string text_of(const std::vector<std::string>& value) {
  std::string list;
  for (const std::string& text : value) {
    list += concat(list.empty() ? "" : ", ", toml_string(text));
  }
  return concat('[', list, ']');
}
std::string text_of(const std::optional<double>& value) {
  return value ? number_text(*value) : toml_string(kAuto);
}

std::string text_of(const Json& value) {
  if (value.is_number_float()) return number_text(value.get<double>());
  if (!value.is_structured()) return value.dump();
  std::string list;
  for (const auto& [key, item] : value.items()) {
    list +=
        concat(list.empty() ? "" : ", ",
               value.is_object() ? concat(toml_string(key), " = ") : std::string(), text_of(item));
  }
  return value.is_object() ? concat('{', list, '}') : concat('[', list, ']');
}
std::string text_of(const ConfigValue& value) { return text_of(value.json); }

std::string line_of(const ConfigEntry& entry) {
  const std::size_t dot = entry.name.find('.');
  const bool ignored = !entry.ignored_by.empty();
  return concat(ignored ? "# " : "", entry.name.substr(dot == std::string_view::npos ? 0 : dot + 1),
                " = ", value_of(entry),
                ignored ? concat("  (no effect with ", entry.ignored_by, ")") : "", '\n');
}

// What --set takes besides TOML values: a string without quotes, strings between commas, auto.
bool take_bare(const ConfigEntry& entry, const std::string& value) {
  if (auto* const* text = std::get_if<std::string*>(&entry.field)) {
    if (value.starts_with('"') || value.starts_with('\'')) return false;
    **text = value;
    return true;
  }
  if (auto* const* list = std::get_if<std::vector<std::string>*>(&entry.field)) {
    if (value.starts_with('[')) return false;
    (*list)->clear();
    std::istringstream items(value);
    for (std::string item; std::getline(items, item, ',');) (*list)->push_back(item);
    return true;
  }
  auto* const* number = std::get_if<std::optional<double>*>(&entry.field);
  if (number == nullptr || value != kAuto) return false;
  (*number)->reset();
  return true;
}

template <class Number>
ConfigCheck range_check(const Number& value, Number low, Number high) {
  return [&value, low, high] {
    return value >= low && value <= high ? std::string() : concat(low, " to ", high);
  };
}

bool is_fixed(const ConfigEntry& entry) { return entry.fixed_in_run && entry.ignored_by.empty(); }

template <class Number>
void check_numbers(std::string_view key, Number value, Number low, Number high) {
  if (!(value >= low && value <= high)) {
    fail_argument(key, concat(low, " to ", high), concat(value));
  }
}

}  // namespace

std::string_view type_of(const ConfigEntry& entry) {
  constexpr std::array<std::string_view, 7> kNames = {
      "integer", "number", "boolean", "string", "strings", "number or auto", "value"};
  return kNames[entry.field.index()];
}

std::string value_of(const ConfigEntry& entry) {
  return std::visit([](const auto* field) { return text_of(*field); }, entry.field);
}

ConfigKeys read_entries(const ConfigEntries& entries, std::string_view toml_text,
                        std::string_view where, const ConfigLists& lists) {
  return Reader(where, lists).read(entries, parse(toml_text, where));
}

std::string set_entry(const ConfigEntries& entries, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string place = concat("--set ", assignment);
  if (equals == std::string_view::npos)
    fail_argument(place, "The form is key=value, but there is no '='.");
  const std::string value(assignment.substr(equals + 1));
  const std::string key(assignment.substr(0, equals));
  const ConfigEntry& entry = find_entry(entries, {}, key, place);
  if (take_bare(entry, value)) {
    check_value(entry, place);
  } else {
    const toml::table table = parse(concat("value = ", value), place);
    assign(entry, *table.get("value"), place);
  }
  return key;
}

void check_given_entries(const ConfigEntries& entries, const ConfigKeys& given) {
  for (const ConfigEntry& entry : entries) {
    if (entry.ignored_by.empty() || !given.contains(entry.name)) continue;
    fail_argument(entry.name, concat("This key has no effect with ", entry.ignored_by,
                                     ": remove it from the configuration."));
  }
}

std::string entries_to_toml(const ConfigEntries& entries, const ConfigLists& lists) {
  std::string out, section;
  for (const ConfigEntry& entry : entries) {
    if (section_of(entry.name).empty()) out += line_of(entry);
  }
  for (const ConfigEntry& entry : entries) {
    if (section_of(entry.name).empty()) continue;
    if (section_of(entry.name) != section) {
      section = section_of(entry.name);
      out += concat(out.empty() ? "[" : "\n[", section, "]\n");
    }
    out += line_of(entry);
  }
  for (const ConfigList& list : lists) {
    for (const ConfigEntries& item : list.items) {
      out += concat(out.empty() ? "[[" : "\n[[", list.name, "]]\n");
      for (const ConfigEntry& entry : item) out += line_of(entry);
    }
  }
  return out;
}

Json entries_to_json(const ConfigEntries& entries) {
  Json out = Json::object();
  for (const ConfigEntry& entry : entries) out[std::string(entry.name)] = value_of(entry);
  return out;
}

std::string hash_entries(const ConfigEntries& entries) {
  std::string text;
  for (const ConfigEntry& entry : entries) {
    if (is_fixed(entry)) text += concat(entry.name, '=', value_of(entry), '\n');
  }
  return sha256_hex_of_text(text);
}

void check_same_entries(const Json& recorded, const ConfigEntries& entries, const Json& defaults) {
  for (const ConfigEntry& entry : entries) {
    if (!is_fixed(entry)) continue;
    const std::string name(entry.name);
    const Json& source = recorded.contains(name) ? recorded : defaults;
    const auto before = source.at(name).get<std::string>();
    const std::string now = value_of(entry);
    if (before != now) {
      fail_argument(entry.name, concat("the value that the run was started with, ", before), now);
    }
  }
}

std::string read_config_file(const std::filesystem::path& path) {
  return read_text_file(path, Index{1} << 20);
}

void check_range(std::string_view key, Index value, Index low, Index high) {
  check_numbers(key, value, low, high);
}
void check_range(std::string_view key, double value, double low, double high) {
  check_numbers(key, value, low, high);
}

ConfigCheck in_range(const Index& value, Index low, Index high) {
  return range_check(value, low, high);
}
ConfigCheck in_range(const double& value, double low, double high) {
  return range_check(value, low, high);
}

std::string join_choices(std::span<const std::string_view> known) {
  std::string out;
  for (std::size_t i = 0; i < known.size(); ++i) {
    out += concat(i == 0 ? "" : i + 1 == known.size() ? " or " : ", ", known[i]);
  }
  return out;
}

void check_choice(std::string_view key, std::string_view value,
                  std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), value) == known.end()) {
    fail_argument(key, join_choices(known), value);
  }
}

}  // namespace hone
