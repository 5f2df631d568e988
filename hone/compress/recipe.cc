// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/recipe.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/config/config_table.h"

namespace hone::compress {
namespace {

constexpr std::array<std::string_view, 3> kOnFail{"skip", "stop", "keep"};
constexpr std::array<std::string_view, 1> kKinds{"quantize"};
constexpr std::array<std::string_view, 3> kAlgorithms{"rtn", "importance", "gptq"};
constexpr std::array<std::string_view, 2> kActivations{"int8:g32", "none"};

// A value that is a string in TOML and of another type in the recipe: `take` converts and stores
// it, and returns what is expected if the string is not valid. The check owns the string.
ConfigEntry word(std::string_view name, std::string now,
                 std::function<std::string(const std::string&)> take) {
  const auto text = std::make_shared<std::string>(std::move(now));
  return {.name = name, .field = text.get(), .check = [text, take = std::move(take)] {
            return take(*text);
          }};
}

// The same for one of a few names, as its index.
ConfigEntry choice(std::string_view name, std::span<const std::string_view> known, std::size_t now,
                   std::function<void(std::size_t)> take) {
  return word(name, std::string(known[now]),
              [known, take = std::move(take)](const std::string& text) {
                const auto found = std::ranges::find(known, text);
                if (found == known.end()) return join_choices(known);
                take(static_cast<std::size_t>(found - known.begin()));
                return std::string();
              });
}

bool is_format(const std::string& text) {
  try {
    return parse_weight_format(text) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

// "GLOB=FORMAT"
std::string check_formats(const std::vector<std::string>& formats) {
  const bool good = std::ranges::all_of(formats, [](const std::string& one) {
    const std::size_t equals = one.find('=');
    return equals != one.npos && equals > 0 && is_format(one.substr(equals + 1));
  });
  return good ? std::string() : concat("\"GLOB=FORMAT\" with a format of ", weight_format_forms());
}

ConfigEntry format_entry(std::string_view name, std::string& text) {
  return {.name = name, .field = &text, .required = false, .check = [&text] {
            return is_format(text) ? std::string() : weight_format_forms();
          }};
}

ConfigEntry format_or_float(std::string_view name, std::string& text) {
  return {.name = name, .field = &text, .check = [&text] {
            return text == "float" || text == "auto" || is_format(text)
                       ? std::string()
                       : concat("auto, float or ", weight_format_forms());
          }};
}

template <class Number>
ConfigEntry number(std::string_view name, Number& value, Number high) {
  return {.name = name, .field = &value, .check = in_range(value, 0, high)};
}

ConfigEntries entries_of(QuantizePass& pass) {
  ConfigEntry kind = choice("pass.kind", kKinds, 0, [](std::size_t) {});
  kind.required = true;
  return {kind,
          format_entry("pass.spec", pass.spec),
          choice("pass.algo", kAlgorithms, static_cast<std::size_t>(pass.rounding),
                 [&pass](std::size_t index) { pass.rounding = static_cast<Rounding>(index); }),
          {"pass.clip", &pass.clip},
          {"pass.act_order", &pass.act_order},
          number("pass.damp", pass.damp, 1e3),
          choice("pass.act", kActivations, pass.act_int8 ? 0 : 1,
                 [&pass](std::size_t index) { pass.act_int8 = index == 0; }),
          {"pass.apply", &pass.apply},
          {"pass.except", &pass.except},
          {.name = "pass.formats", .field = &pass.formats, .check = [&pass] {
             return check_formats(pass.formats);
           }}};
}

ConfigEntries entries_of(Recipe& recipe, Index& version) {
  Gate& gate = recipe.gate;
  return {{.name = "version",
           .field = &version,
           .required = true,
           .check = [&version] { return std::string(version == 1 ? "" : "1"); }},
          {"model.keep_float", &recipe.keep_float},
          format_or_float("model.head", recipe.head),
          format_or_float("model.embedding", recipe.embedding),
          {"model.requantize", &recipe.requantize},
          {"calib.data", &recipe.calib_data},
          {.name = "calib.tokens",
           .field = &recipe.calib_tokens,
           .check = in_range(recipe.calib_tokens, 1, Index{1'000'000'000})},
          {.name = "calib.window",
           .field = &recipe.calib_window,
           .check = in_range(recipe.calib_window, 2, Index{1'000'000})},
          {.name = "calib.seed",
           .field = &recipe.calib_seed,
           .check = in_range(recipe.calib_seed, 0, Index{1} << 40)},
          number("allocate.size_mb", recipe.allocate.size_mb, 1e9),
          number("allocate.bits", recipe.allocate.bits, 64.0),
          {.name = "allocate.formats",
           .field = &recipe.allocate.formats,
           .check =
               [&recipe] {
                 const bool good = std::ranges::all_of(recipe.allocate.formats, is_format);
                 return good ? std::string() : concat("formats: ", weight_format_forms());
               }},
          {.name = "allocate.tokens",
           .field = &recipe.allocate.tokens,
           .check = in_range(recipe.allocate.tokens, 1, Index{1'000'000})},
          {"eval.data", &recipe.eval_data},
          number("eval.tokens", recipe.eval_tokens, Index{1'000'000'000'000}),
          number("gate.max_ppl_ratio", gate.max_ppl_ratio, 1e9),
          number("gate.max_kl", gate.max_kl, 1e9),
          number("gate.min_top1", gate.min_top1, 1.0),
          number("gate.min_speedup", gate.min_speedup, 1e9),
          number("gate.min_bytes_saved", gate.min_bytes_saved, Index{1'000'000'000'000'000}),
          choice("gate.on_fail", kOnFail, static_cast<std::size_t>(gate.on_fail),
                 [&gate](std::size_t index) { gate.on_fail = static_cast<OnFail>(index); })};
}

ConfigLists lists_of(Recipe& recipe) {
  ConfigList passes{.name = "pass",
                    .append = [&recipe] { return entries_of(recipe.passes.emplace_back()); }};
  for (QuantizePass& pass : recipe.passes) passes.items.push_back(entries_of(pass));
  return {passes};
}

}  // namespace

std::string_view name_of(Rounding rounding) {
  return kAlgorithms[static_cast<std::size_t>(rounding)];
}

bool needs_calibration(const Recipe& recipe) {
  const auto has_inputs = [](const QuantizePass& pass) { return pass.rounding != Rounding::Rtn; };
  return recipe.allocate.is_wanted() || std::ranges::any_of(recipe.passes, has_inputs);
}

Recipe parse_recipe(std::string_view text, const std::string& where) {
  Recipe recipe;
  Index version = 0;
  read_entries(entries_of(recipe, version), text, where, lists_of(recipe));
  return recipe;
}

Recipe read_recipe(const std::filesystem::path& path) {
  return parse_recipe(read_config_file(path), path.string());
}

std::string to_toml(const Recipe& recipe) {
  Recipe copy = recipe;
  Index version = 1;
  return entries_to_toml(entries_of(copy, version), lists_of(copy));
}

QuantizePass parse_quantize_option(std::string_view text) {
  QuantizePass pass;
  std::string spec;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const auto algorithm = std::ranges::find(kAlgorithms, part);
    if (part == "noclip") {
      pass.clip = false;
    } else if (algorithm != kAlgorithms.end()) {
      pass.rounding = static_cast<Rounding>(algorithm - kAlgorithms.begin());
    } else {
      spec += concat(spec.empty() ? "" : ":", part);
    }
    begin = end + 1;
  }
  pass.spec = parse_weight_format(spec)->name();
  return pass;
}

}  // namespace hone::compress
