// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"

namespace hone {

// A value of any type, for code that has its own rules to read it. A key of this type takes a whole
// table, unless there are also keys for its entries ("layers.params" and "layers.params.rank").
struct ConfigValue {
  Json json;
  std::string place = {};  // "layers.toml:7", for errors
};

// Points to a key's value. An empty optional number is written "auto".
using ConfigField = std::variant<Index*, double*, bool*, std::string*, std::vector<std::string>*,
                                 std::optional<double>*, ConfigValue*>;

// Called after a value was read. Returns "" if it is legal, otherwise what would be legal ("0 to
// 1").
using ConfigCheck = std::function<std::string()>;

// One key of a configuration, bound to the variable that has its value.
struct ConfigEntry {
  std::string_view name;  // "lr.peak"; a key without a dot has no section
  ConfigField field;
  std::string meaning = {};
  bool fixed_in_run = true;  // false: may differ when a run is resumed
  bool required = false;     // true: a file without it is refused
  ConfigCheck check = {};    // may be empty
  // The setting that makes the key have no effect: "optim.name = sgd".
  std::string ignored_by = {};
};
using ConfigEntries = std::vector<ConfigEntry>;
// Appends keys: `const EntryAdder add{entries}; add("lr.peak", &lr.peak, "highest rate");`
struct EntryAdder {
  ConfigEntries& entries;
  std::string ignored_by = {};  // set for all of these keys; see ConfigEntry

  void operator()(std::string_view name, ConfigField field, std::string meaning,
                  bool fixed_in_run = true) const {
    entries.push_back({name, field, std::move(meaning), fixed_in_run});
    entries.back().ignored_by = ignored_by;
  }
  // If `is_so`, `setting` makes the last key have no effect.
  void ignored_if(bool is_so, std::string setting) const {
    if (is_so && ignored_by.empty()) entries.back().ignored_by = std::move(setting);
  }
};
using ConfigKeys = std::set<std::string, std::less<>>;

// [[pass]], an array of tables.
struct ConfigList {
  std::string_view name;  // "pass"; its keys are "pass.kind" and so on
  // Appends a default element of a kind and returns its keys.
  std::function<ConfigEntries(const std::string& kind)> append;
  std::string_view kind = {};  // the key that names the kind; empty if all elements are alike
  std::span<const std::string_view> kinds = {};
  std::vector<ConfigEntries> items = {};  // the keys of the existing elements
};
using ConfigLists = std::vector<ConfigList>;

// Returns "integer", "number", "boolean", "string", "strings" (an array of strings), "number or
// auto" or "value".
std::string_view type_of(const ConfigEntry& entry);
// Returns the value in TOML syntax.
std::string value_of(const ConfigEntry& entry);

// ---- functions on entries; functions on a whole configuration follow below

// read_entries() and set_entry() return the keys that they assigned, without keys of lists.
// Elements read for `lists` are appended to the existing ones.
ConfigKeys read_entries(const ConfigEntries& entries, std::string_view toml, std::string_view where,
                        const ConfigLists& lists = {});
std::string set_entry(const ConfigEntries& entries, std::string_view assignment);
void check_given_entries(const ConfigEntries& entries, const ConfigKeys& given);
std::string entries_to_toml(const ConfigEntries& entries, const ConfigLists& lists = {});
Json entries_to_json(const ConfigEntries& entries);
std::string hash_entries(const ConfigEntries& entries);
void check_same_entries(const Json& recorded, const ConfigEntries& entries, const Json& defaults);
std::string read_config_file(const std::filesystem::path& path);

// ---- Config is a struct with `ConfigEntries config_entries(Config&)`, which lists all keys by
// section. The parser, docs/config.md and the resume check use that list. If Config has a member
// `ConfigKeys given`, it collects the keys that files and assignments set.

// Reads TOML text over `config`; `where` names the source in errors. Throws Error{InvalidArgument}
// that names file, line and key for malformed TOML, a wrong type, a value that its check refuses,
// or an unknown key (with the nearest known one). `config` does not change on errors.
template <class Config>
void read_config_text(Config& config, std::string_view toml, std::string_view where) {
  Config changed = config;
  ConfigKeys keys = read_entries(config_entries(changed), toml, where);
  if constexpr (requires { changed.given; }) changed.given.merge(keys);
  config = std::move(changed);
}
// Like read_config_text() for a file; throws Error{NotFound} if it cannot be opened.
template <class Config>
void read_config(Config& config, const std::filesystem::path& path) {
  read_config_text(config, read_config_file(path), path.string());
}
// Applies an assignment as passed to --set: "lr.peak=0.002". Strings, and comma-separated lists of
// strings, need no quotes.
template <class Config>
void set_config(Config& config, std::string_view assignment) {
  const std::string key = set_entry(config_entries(config), assignment);
  if constexpr (requires { config.given; }) config.given.insert(key);
}
// Throws Error{InvalidArgument} that names the first key of config.given that has no effect.
template <class Config>
void check_given(Config config) {
  check_given_entries(config_entries(config), config.given);
}
// Returns all keys in TOML. Keys without an effect become comments.
template <class Config>
std::string to_toml(Config config) {
  return entries_to_toml(config_entries(config));
}
// Returns all keys in JSON: {"lr.peak": …}.
template <class Config>
requires requires(Config& config) { config_entries(config); }
Json to_json(Config config) { return entries_to_json(config_entries(config)); }
// Returns the SHA-256 of the keys that have an effect and may not change within a run.
template <class Config>
std::string config_hash(Config config) {
  return hash_entries(config_entries(config));
}
// Throws Error{InvalidArgument} that names the first key of config_hash() that differs from its
// recorded value. A key that did not exist when the run was recorded had its default.
template <class Config>
void check_same_run(const Json& recorded, Config config) {
  check_same_entries(recorded, config_entries(config), to_json(Config()));
}

// ---- range checks; each throws Error{InvalidArgument} that names the key

void check_range(std::string_view key, Index value, Index low, Index high);
void check_range(std::string_view key, double value, double low, double high);
// The same as a check of an entry. `value` must outlive it.
ConfigCheck in_range(const Index& value, Index low, Index high);
ConfigCheck in_range(const double& value, double low, double high);
// Throws "[key] expected a, b or c, got …" unless `value` is in `known`.
void check_choice(std::string_view key, std::string_view value,
                  std::span<const std::string_view> known);
// Returns "a, b or c".
std::string join_choices(std::span<const std::string_view> known);

}  // namespace hone
