// SPDX-License-Identifier: Apache-2.0
#include <toml++/toml.h>

#include <sstream>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file_io.h"
#include "hone/core/nearest_name.h"
#include "hone/train/trainer/lm_config.h"

namespace hone::trainer {
namespace {

std::string place_of(std::string_view where, const toml::source_region& region) {
  return region.begin.line == 0 ? std::string(where) : concat(where, ":", region.begin.line);
}

const ConfigKey& find_key(const std::string& name, const std::string& place) {
  std::vector<std::string_view> known;
  for (const ConfigKey& key : config_keys()) {
    if (key.name == name) return key;
    known.push_back(key.name);
  }
  const std::string_view nearest = nearest_name(name, known);
  fail_argument(place,
                nearest.empty() ? std::string("a known key (docs/config.md lists them)")
                                : concat("a known key, nearest is '", nearest, "'"),
                concat("'", name, "'"));
}

void assign(LmConfig& config, const std::string& name, const toml::node& node,
            const std::string& place) {
  const ConfigKey& key = find_key(name, place);
  const ConfigField field = key.field(config);
  const auto refuse = [&] {
    std::ostringstream got;
    got << node.type();
    fail_argument(place, concat("for ", name, " a TOML ", type_of(key)), got.str());
  };
  if (const auto* integer = std::get_if<Index*>(&field)) {
    const auto value = node.value_exact<std::int64_t>();
    value ? void(** integer = *value) : refuse();
  } else if (const auto* number = std::get_if<double*>(&field)) {
    const auto value = node.is_number() ? node.value<double>() : std::nullopt;
    value ? void(** number = *value) : refuse();
  } else if (const auto* boolean = std::get_if<bool*>(&field)) {
    const auto value = node.value_exact<bool>();
    value ? void(** boolean = *value) : refuse();
  } else if (const auto* text = std::get_if<std::string*>(&field)) {
    const auto value = node.value_exact<std::string>();
    value ? void(** text = *value) : refuse();
  } else {
    const toml::array* const array = node.as_array();
    if (array == nullptr || !(array->empty() || array->is_homogeneous<std::string>())) refuse();
    std::vector<std::string>& list = *std::get<std::vector<std::string>*>(field);
    list.clear();
    for (const toml::node& item : *array) list.push_back(*item.value_exact<std::string>());
  }
}

void assign_table(LmConfig& config, const std::string& prefix, const toml::table& table,
                  std::string_view where) {
  for (const auto& [key, node] : table) {
    const std::string name =
        prefix.empty() ? std::string(key.str()) : concat(prefix, ".", key.str());
    if (const toml::table* nested = node.as_table()) {
      assign_table(config, name, *nested, where);
    } else {
      assign(config, name, node, place_of(where, node.source()));
    }
  }
}

toml::table parse(std::string_view text, std::string_view where) {
  try {
    return toml::parse(text, where);
  } catch (const toml::parse_error& error) {
    fail_argument(place_of(where, error.source()), "TOML", error.description());
  }
}

}  // namespace

void read_config_text(LmConfig& config, std::string_view toml_text, std::string_view where) {
  LmConfig changed = config;
  assign_table(changed, "", parse(toml_text, where), where);
  config = changed;
}

void read_config(LmConfig& config, const std::filesystem::path& path) {
  read_config_text(config, read_text_file(path, Index{1} << 20), path.string());
}

void set_config(LmConfig& config, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string place = concat("--set ", assignment);
  if (equals == std::string_view::npos) fail_argument(place, "key=value", "no '='");
  const std::string name(assignment.substr(0, equals));
  const std::string value(assignment.substr(equals + 1));
  const ConfigKey& key = find_key(name, place);
  if (type_of(key) == "string" && !value.starts_with('"') && !value.starts_with('\'')) {
    *std::get<std::string*>(key.field(config)) = value;
    return;
  }
  if (type_of(key) == "strings" && !value.starts_with('[')) {
    std::vector<std::string>& list = *std::get<std::vector<std::string>*>(key.field(config));
    list.clear();
    std::istringstream items(value);
    for (std::string item; std::getline(items, item, ',');) list.push_back(item);
    return;
  }
  const toml::table table = parse(concat("value = ", value), place);
  assign(config, name, *table.get("value"), place);
}

}  // namespace hone::trainer
