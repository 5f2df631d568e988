// SPDX-License-Identifier: Apache-2.0
#include "hone/core/config/config_table.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "hone/core/check.h"
#include "hone/core/config/toml_limits.h"
#include "hone/core/file_io.h"
#include "hone/core/nearest_name.h"
#include "hone/core/sha256.h"

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

const ConfigEntry& find_entry(const ConfigEntries& entries, const std::string& name,
                              const std::string& place) {
  std::vector<std::string_view> known;
  for (const ConfigEntry& entry : entries) {
    if (entry.name == name) return entry;
    known.push_back(entry.name);
  }
  const std::string_view nearest = nearest_name(name, known);
  fail_argument(place, concat("Unknown key '", name, "'. ",
                              nearest.empty() ? std::string("docs/config.md lists all keys.")
                                              : concat("Did you mean '", nearest, "'?")));
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

void assign(const ConfigEntry& entry, const toml::node& node, const std::string& place) {
  if (std::visit([&](auto* field) { return take(node, *field); }, entry.field)) return;
  std::ostringstream got;
  got << node.type();
  fail_argument(place, concat("a TOML ", type_of(entry), " for ", entry.name), got.str());
}

void assign_table(const ConfigEntries& entries, const std::string& prefix, const toml::table& table,
                  std::string_view where) {
  for (const auto& [key, node] : table) {
    const std::string name =
        prefix.empty() ? std::string(key.str()) : concat(prefix, ".", key.str());
    if (const toml::table* nested = node.as_table()) {
      assign_table(entries, name, *nested, where);
    } else {
      const std::string place = place_of(where, node.source());
      assign(find_entry(entries, name, place), node, place);
    }
  }
}

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

template <class Number>
void check_numbers(std::string_view key, Number value, Number low, Number high) {
  if (!(value >= low && value <= high)) {
    fail_argument(key, concat(low, " to ", high), concat(value));
  }
}

}  // namespace

std::string_view type_of(const ConfigEntry& entry) {
  constexpr std::array<std::string_view, 6> kNames = {"integer", "number",  "boolean",
                                                      "string",  "strings", "number or auto"};
  return kNames[entry.field.index()];
}

std::string value_of(const ConfigEntry& entry) {
  return std::visit([](const auto* field) { return text_of(*field); }, entry.field);
}

void read_entries(const ConfigEntries& entries, std::string_view toml_text,
                  std::string_view where) {
  assign_table(entries, "", parse(toml_text, where), where);
}

void set_entry(const ConfigEntries& entries, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string place = concat("--set ", assignment);
  if (equals == std::string_view::npos)
    fail_argument(place, "The form is key=value, but there is no '='.");
  const std::string value(assignment.substr(equals + 1));
  const ConfigEntry& entry = find_entry(entries, std::string(assignment.substr(0, equals)), place);
  if (auto* const* text = std::get_if<std::string*>(&entry.field)) {
    if (!value.starts_with('"') && !value.starts_with('\'')) {
      **text = value;
      return;
    }
  }
  if (auto* const* list = std::get_if<std::vector<std::string>*>(&entry.field)) {
    if (!value.starts_with('[')) {
      (*list)->clear();
      std::istringstream items(value);
      for (std::string item; std::getline(items, item, ',');) (*list)->push_back(item);
      return;
    }
  }
  if (auto* const* number = std::get_if<std::optional<double>*>(&entry.field)) {
    if (value == kAuto) {
      (*number)->reset();
      return;
    }
  }
  const toml::table table = parse(concat("value = ", value), place);
  assign(entry, *table.get("value"), place);
}

std::string entries_to_toml(const ConfigEntries& entries) {
  std::string out, section;
  for (const ConfigEntry& entry : entries) {
    const std::size_t dot = entry.name.find('.');
    if (entry.name.substr(0, dot) != section) {
      section = entry.name.substr(0, dot);
      out += concat(out.empty() ? "[" : "\n[", section, "]\n");
    }
    out += concat(entry.name.substr(dot + 1), " = ", value_of(entry), '\n');
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
    if (entry.fixed_in_run) text += concat(entry.name, '=', value_of(entry), '\n');
  }
  return sha256_hex_of_text(text);
}

void check_same_entries(const Json& recorded, const ConfigEntries& entries) {
  for (const ConfigEntry& entry : entries) {
    if (!entry.fixed_in_run) continue;
    const auto found = recorded.find(std::string(entry.name));
    const std::string before = found == recorded.end() ? "nothing" : found->get<std::string>();
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
