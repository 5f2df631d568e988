// SPDX-License-Identifier: Apache-2.0
#include "hone/train/surgery/layer_select.h"

#include <algorithm>
#include <cstdint>
#include <regex>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/config/nearest_name.h"
#include "hone/core/names.h"

namespace hone::nn {
namespace {

constexpr std::string_view kSelect = "layer selection";

std::regex compile(const std::string& pattern) {
  // This libstdc++ flag bounds the time by a polynomial, which hostile patterns would make
  // exponential otherwise.
  return std::regex(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
}

std::regex compile_pattern(const std::string& pattern) {
  constexpr std::size_t kLongest = 500;  // limits the depth of the parser's recursion
  HONE_CHECK(pattern.size() <= kLongest, kSelect,
             concat("a pattern of at most ", kLongest, " bytes"), pattern.size());
  try {
    return compile(pattern);
  } catch (const std::regex_error& error) {
    const auto code = error.code();
    HONE_REQUIRE(
        code != std::regex_constants::error_complexity && code != std::regex_constants::error_space,
        kSelect, concat("The pattern ", quote_name(pattern), " is too complex."));
  }
  std::string literal;
  for (const char c : pattern) {
    if (c == '*') {
      literal += ".*";
    } else {
      if (std::string_view(R"(^$\.+?()[]{}|)").find(c) != std::string_view::npos) literal += '\\';
      literal += c;
    }
  }
  return compile(literal);
}

std::vector<std::string> read_strings(const Json& json, std::string_view key) {
  if (json.is_string()) return {json.get<std::string>()};
  const bool is_list = json.is_array() && !json.empty() &&
                       std::ranges::all_of(json, [](const Json& item) { return item.is_string(); });
  HONE_CHECK(is_list, kSelect, concat("a string or a list of strings as ", key),
             json.is_array() && json.empty() ? "an empty list" : json.type_name());
  return json.get<std::vector<std::string>>();
}

std::vector<Index> read_numbers(const Json& json, std::string_view key) {
  const auto is_number = [](const Json& item) {
    return item.is_number_integer() &&
           (!item.is_number_unsigned() || item.get<std::uint64_t>() >> 63 == 0);
  };
  HONE_CHECK(json.is_array() && !json.empty() && std::ranges::all_of(json, is_number), kSelect,
             concat("a list of whole numbers as ", key), json.type_name());
  return json.get<std::vector<Index>>();
}

LayerSelector::Range read_range(const Json& json) {
  const std::vector<Index> numbers = read_numbers(json, "range");
  HONE_CHECK(numbers.size() == 2 || numbers.size() == 3, kSelect,
             "[start, end] or [start, end, step] as range", concat(numbers.size(), " numbers"));
  return {numbers[0], numbers[1], numbers.size() == 3 ? numbers[2] : 1};
}

std::set<std::string> paths_of(std::span<const Layer> layers) {
  std::set<std::string> paths;
  for (const Layer& layer : layers) paths.insert(layer.path);
  return paths;
}

// `word` is what was looked for.
[[noreturn]] void refuse(const std::string& problem, std::string_view kind, std::string_view word,
                         const std::set<std::string>& all) {
  if (all.empty()) fail_argument(kSelect, concat(problem, " The model has no layers."));
  const std::vector<std::string_view> known(all.begin(), all.end());
  std::string list;
  for (const std::string_view name : nearest_names(word, known, 3)) {
    list += concat(list.empty() ? "" : ", ", quote_name(name));
  }
  fail_argument(kSelect, concat(problem, " The nearest ", kind, ": ", list, "."));
}

[[noreturn]] void refuse_empty(std::span<const Layer> layers, const LayerSelector& selector) {
  std::set<std::string> types;
  for (const Layer& layer : layers) types.insert(type_of(*layer.module));
  const auto is_type = [&types](const std::string& type) { return types.contains(type); };
  if (!selector.type.empty() && std::ranges::none_of(selector.type, is_type)) {
    const std::string& type = selector.type[0];
    refuse(concat("No layer has the type ", quote_name(type), "."), "types", type, types);
  }
  std::string wanted, word;
  const auto add = [&](std::string_view key, const std::vector<std::string>& entries) {
    if (entries.empty()) return;
    wanted += concat(wanted.empty() ? "" : ", ", key, " ", quote_name(entries[0]));
    if (entries.size() > 1) wanted += concat(" or ", entries.size() - 1, " more");
    if (word.empty()) word = entries[0];
  };
  add("pattern", selector.pattern);
  add("contains", selector.contains);
  add("type", selector.type);
  refuse(wanted.empty() ? "Nothing can be selected." : concat("No layer fits ", wanted, "."),
         "paths", word, paths_of(layers));
}

std::vector<Layer> choose_positions(std::vector<Layer> layers, const LayerSelector& selector) {
  HONE_REQUIRE(selector.indices.empty() || !selector.range, kSelect,
               "Both indices and range are given.");
  const auto count = static_cast<Index>(layers.size());
  std::set<Index> positions;
  for (const Index index : selector.indices) {
    HONE_CHECK(index >= 0 && index < count, kSelect,
               concat("indices from 0 below the ", count, " selected layers"), index);
    positions.insert(index);
  }
  if (selector.range) {
    const auto [start, end, step] = *selector.range;
    HONE_CHECK(start >= 0 && start < end && end <= count, kSelect,
               concat("a range [start, end] within the ", count, " selected layers"),
               concat("[", start, ", ", end, "]"));
    HONE_CHECK(step >= 1, kSelect, "a range with a step of at least 1", step);
    for (Index i = start; i < end; i += std::min(step, count)) positions.insert(i);
  }
  if (positions.empty()) return layers;
  std::vector<Layer> chosen;
  for (const Index position : positions) {
    chosen.push_back(std::move(layers[static_cast<std::size_t>(position)]));
  }
  return chosen;
}

}  // namespace

LayerSelector read_selector(const Json& json) {
  LayerSelector selector;
  if (!json.is_object()) {
    selector.pattern = read_strings(json, "selector (or a table)");
    return selector;
  }
  for (const auto& [key, value] : json.items()) {
    if (key == "pattern") {
      selector.pattern = read_strings(value, key);
    } else if (key == "contains") {
      selector.contains = read_strings(value, key);
    } else if (key == "type") {
      selector.type = read_strings(value, key);
    } else if (key == "indices") {
      selector.indices = read_numbers(value, key);
    } else if (key == "range") {
      selector.range = read_range(value);
    } else {
      constexpr std::string_view kKeys[] = {"pattern", "contains", "type", "indices", "range"};
      fail_argument(kSelect, describe_unknown("key", escape_controls(key), kKeys));
    }
  }
  return selector;
}

std::vector<Layer> select_layers(torch::nn::Module& model, const LayerSelector& selector) {
  for (const auto* list : {&selector.pattern, &selector.contains, &selector.type}) {
    HONE_REQUIRE(std::ranges::find(*list, std::string()) == list->end(), kSelect,
                 "A pattern, contains or type is empty; without any, all layers are selected.");
  }
  std::vector<std::regex> patterns;
  for (const std::string& pattern : selector.pattern) patterns.push_back(compile_pattern(pattern));
  const auto is_selected = [&](const Layer& layer) {
    const auto any = [](const auto& list, const auto& fits) {
      return list.empty() || std::ranges::any_of(list, fits);
    };
    const std::string& path = layer.path;
    const std::string type = type_of(*layer.module);
    return any(patterns, [&](const std::regex& own) { return std::regex_search(path, own); }) &&
           any(selector.contains,
               [&](const auto& own) { return path.find(own) != std::string::npos; }) &&
           any(selector.type, [&](const auto& own) { return own == type; });
  };
  const std::vector<Layer> layers = layers_of(model);
  std::vector<Layer> selected;
  std::set<const torch::nn::Module*> seen;
  for (const Layer& layer : layers) {
    if (is_selected(layer) && seen.insert(layer.module.get()).second) selected.push_back(layer);
  }
  if (selected.empty()) refuse_empty(layers, selector);
  return choose_positions(std::move(selected), selector);
}

Layer find_layer(torch::nn::Module& model, std::string_view path) {
  std::vector<Layer> layers = layers_of(model);
  const auto found = std::ranges::find(layers, path, &Layer::path);
  if (found != layers.end()) return *found;
  refuse(concat("There is no layer ", quote_name(path), "."), "paths", path, paths_of(layers));
}

}  // namespace hone::nn
