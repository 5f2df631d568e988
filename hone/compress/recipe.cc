// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/recipe.h"

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <sstream>

#include "hone/compress/method/round_clip.h"
#include "hone/core/check.h"
#include "hone/core/config/toml_limits.h"
#include "hone/core/file_io.h"
#include "hone/core/nearest_name.h"

namespace hone::compress {
namespace {

constexpr std::array<std::string_view, 5> kTopKeys{"version", "model", "eval", "gate", "pass"};
constexpr std::array<std::string_view, 3> kModelKeys{"keep_float", "head", "embedding"};
constexpr std::array<std::string_view, 2> kEvalKeys{"data", "tokens"};
constexpr std::array<std::string_view, 6> kGateKeys{"max_ppl_ratio", "max_kl",          "min_top1",
                                                    "min_speedup",   "min_bytes_saved", "on_fail"};
constexpr std::array<std::string_view, 7> kQuantizeKeys{"kind", "spec",  "algo",  "clip",
                                                        "act",  "apply", "except"};
constexpr std::array<std::string_view, 3> kOnFail{"skip", "stop", "keep"};
constexpr std::array<std::string_view, 1> kKinds{"quantize"};
constexpr std::array<std::string_view, 1> kAlgorithms{"rtn"};
constexpr std::array<std::string_view, 2> kActivations{"int8:g32", "none"};

// Reads one table. Its errors name the file and the line.
class TableReader {
 public:
  TableReader(const toml::table& table, std::string where, std::string section)
      : table_(table), where_(std::move(where)), section_(std::move(section)) {}

  void check_keys(std::span<const std::string_view> known) const {
    for (const auto& [key, node] : table_) {
      if (std::ranges::find(known, key.str()) != known.end()) continue;
      fail_at(node, describe_unknown("key", key.str(), known));
    }
  }

  template <class Value>
  void read(std::string_view key, Value& out) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const auto value = node->value<Value>();
    if (!value) fail_at(*node, concat("The value of ", key, " has the wrong type."));
    out = *value;
  }

  void read_number(std::string_view key, double low, double high, double& out) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const auto value = node->value<double>();
    if (!value || !(*value >= low && *value <= high)) {
      fail_at(*node,
              concat("The value of ", key, " must be a number between ", low, " and ", high, "."));
    }
    out = *value;
  }

  void read_list(std::string_view key, std::vector<std::string>& out) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    if (list == nullptr || (!list->empty() && !list->is_homogeneous<std::string>())) {
      fail_at(*node, concat("The value of ", key, " must be a list of strings."));
    }
    out.clear();
    for (const toml::node& item : *list) out.push_back(*item.value<std::string>());
  }

  std::string read_choice(std::string_view key, std::span<const std::string_view> known,
                          std::string_view otherwise) const {
    std::string value(otherwise);
    read(key, value);
    if (std::ranges::find(known, value) == known.end()) {
      std::string legal;
      for (const std::string_view name : known) legal += concat(legal.empty() ? "" : ", ", name);
      fail_argument(place_of(*table_.get(key)), concat("one of ", legal, " for ", key),
                    concat("\"", value, "\""));
    }
    return value;
  }

  [[noreturn]] void fail_at(const toml::node& node, std::string_view sentence) const {
    fail_argument(place_of(node), sentence);
  }
  std::string place_of(const toml::node& node) const {
    return concat(where_, ":", node.source().begin.line,
                  section_.empty() ? "" : concat(" [", section_, "]"));
  }

  const toml::table& table() const { return table_; }

 private:
  const toml::table& table_;
  std::string where_, section_;
};

OnFail parse_on_fail(std::string_view name) {
  return name == "stop" ? OnFail::Stop : name == "keep" ? OnFail::Keep : OnFail::Skip;
}

std::string_view name_of(OnFail on_fail) { return kOnFail[static_cast<std::size_t>(on_fail)]; }

QuantSpec parse_pass_spec(std::string_view text, std::string_view where = "quantize") {
  try {
    const QuantSpec spec = parse_quant_spec(text);
    if (can_round(spec)) return spec;
  } catch (const Error&) {  // Its message lists forms that no pass supports.
  }
  fail_argument(where, kPassSpecs, text);
}

void check_spec_or_float(const TableReader& reader, std::string_view key, const std::string& spec) {
  const toml::node* const node = reader.table().get(key);
  if (node == nullptr || spec == "float") return;
  parse_pass_spec(spec, concat(reader.place_of(*node), " ", key));
}

void read_model(const toml::table& table, const std::string& where, Recipe& recipe) {
  const TableReader reader(table, where, "model");
  reader.check_keys(kModelKeys);
  reader.read_list("keep_float", recipe.keep_float);
  reader.read("head", recipe.head);
  reader.read("embedding", recipe.embedding);
  check_spec_or_float(reader, "head", recipe.head);
  check_spec_or_float(reader, "embedding", recipe.embedding);
}

void read_eval(const toml::table& table, const std::string& where, Recipe& recipe) {
  const TableReader reader(table, where, "eval");
  reader.check_keys(kEvalKeys);
  reader.read("data", recipe.eval_data);
  double tokens = static_cast<double>(recipe.eval_tokens);
  reader.read_number("tokens", 0, 1e12, tokens);
  recipe.eval_tokens = static_cast<Index>(tokens);
}

void read_gate(const toml::table& table, const std::string& where, Gate& gate) {
  const TableReader reader(table, where, "gate");
  reader.check_keys(kGateKeys);
  reader.read_number("max_ppl_ratio", 0, 1e9, gate.max_ppl_ratio);
  reader.read_number("max_kl", 0, 1e9, gate.max_kl);
  reader.read_number("min_top1", 0, 1, gate.min_top1);
  reader.read_number("min_speedup", 0, 1e9, gate.min_speedup);
  double saved = static_cast<double>(gate.min_bytes_saved);
  reader.read_number("min_bytes_saved", 0, 1e15, saved);
  gate.min_bytes_saved = static_cast<Index>(saved);
  gate.on_fail = parse_on_fail(reader.read_choice("on_fail", kOnFail, name_of(gate.on_fail)));
}

QuantizePass read_quantize(const toml::table& table, const std::string& where) {
  const TableReader reader(table, where, "pass");
  reader.check_keys(kQuantizeKeys);
  QuantizePass pass;
  std::string spec = "int8:row";
  reader.read("spec", spec);
  const toml::node* const node = table.get("spec");
  pass.spec = parse_pass_spec(spec, reader.place_of(node == nullptr ? table : *node));
  pass.algo = reader.read_choice("algo", kAlgorithms, pass.algo);
  reader.read("clip", pass.clip);
  pass.act_int8 = reader.read_choice("act", kActivations, "int8:g32") == "int8:g32";
  reader.read_list("apply", pass.apply);
  reader.read_list("except", pass.except);
  return pass;
}

void read_passes(const toml::node& node, const std::string& where, Recipe& recipe) {
  const toml::array* list = node.as_array();
  if (list == nullptr || !list->is_homogeneous<toml::table>()) {
    fail_argument(concat(where, ":", node.source().begin.line),
                  "Passes are written as [[pass]] tables.");
  }
  for (const toml::node& item : *list) {
    const toml::table& table = *item.as_table();
    const TableReader reader(table, where, "pass");
    if (table.get("kind") == nullptr)
      reader.fail_at(item, "The pass has no kind. The only kind is \"quantize\".");
    reader.read_choice("kind", kKinds, "");
    recipe.passes.push_back(read_quantize(table, where));
  }
}

Recipe read_tables(const toml::table& root, const std::string& where) {
  const TableReader reader(root, where, "");
  reader.check_keys(kTopKeys);
  std::int64_t version = 0;
  reader.read("version", version);
  if (version != 1) fail_argument(where, "version = 1", concat("version = ", version));
  Recipe recipe;
  const auto section = [&](std::string_view name) -> const toml::table* {
    const toml::node* node = root.get(name);
    if (node == nullptr) return nullptr;
    if (!node->is_table()) reader.fail_at(*node, concat(name, " must be a table [", name, "]."));
    return node->as_table();
  };
  if (const toml::table* table = section("model")) read_model(*table, where, recipe);
  if (const toml::table* table = section("eval")) read_eval(*table, where, recipe);
  if (const toml::table* table = section("gate")) read_gate(*table, where, recipe.gate);
  if (const toml::node* node = root.get("pass")) read_passes(*node, where, recipe);
  return recipe;
}

toml::array to_array(const std::vector<std::string>& list) {
  toml::array out;
  for (const std::string& item : list) out.push_back(item);
  return out;
}

}  // namespace

Recipe parse_recipe(std::string_view text, const std::string& where) {
  check_toml_keys(text, where);
  toml::table root;
  try {
    root = toml::parse(text, where);
  } catch (const toml::parse_error& error) {
    fail_argument(concat(where, ":", error.source().begin.line),
                  concat("This is not valid TOML: ", error.description()));
  }
  return read_tables(root, where);
}

Recipe read_recipe(const std::filesystem::path& path) {
  return parse_recipe(read_text_file(path, Index{1} << 20), path.string());
}

std::string to_toml(const Recipe& recipe) {
  toml::array passes;
  for (const QuantizePass& pass : recipe.passes) {
    passes.push_back(toml::table{{"kind", "quantize"},
                                 {"spec", to_text(pass.spec)},
                                 {"algo", pass.algo},
                                 {"clip", pass.clip},
                                 {"act", pass.act_int8 ? "int8:g32" : "none"},
                                 {"apply", to_array(pass.apply)},
                                 {"except", to_array(pass.except)}});
  }
  const Gate& gate = recipe.gate;
  const toml::table root{
      {"version", 1},
      {"model", toml::table{{"keep_float", to_array(recipe.keep_float)},
                            {"head", recipe.head},
                            {"embedding", recipe.embedding}}},
      {"eval", toml::table{{"data", recipe.eval_data}, {"tokens", recipe.eval_tokens}}},
      {"gate", toml::table{{"max_ppl_ratio", gate.max_ppl_ratio},
                           {"max_kl", gate.max_kl},
                           {"min_top1", gate.min_top1},
                           {"min_speedup", gate.min_speedup},
                           {"min_bytes_saved", gate.min_bytes_saved},
                           {"on_fail", name_of(gate.on_fail)}}},
      {"pass", passes}};
  std::ostringstream out;
  out << root << '\n';
  return out.str();
}

QuantizePass parse_quantize_option(std::string_view text) {
  QuantizePass pass;
  std::string spec;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    if (part == "noclip") {
      pass.clip = false;
    } else if (std::ranges::find(kAlgorithms, part) != kAlgorithms.end()) {
      pass.algo = part;
    } else {
      spec += concat(spec.empty() ? "" : ":", part);
    }
    begin = end + 1;
  }
  pass.spec = parse_pass_spec(spec);
  return pass;
}

}  // namespace hone::compress
