// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/recipe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/config/config_table.h"

namespace hone::compress {
namespace {

constexpr std::array<std::string_view, 3> kOnFail{"skip", "stop", "keep"};
constexpr std::array<std::string_view, 4> kKinds{"quantize", "prune", "structure", "lowrank"};
static_assert(kKinds.size() == std::variant_size_v<PassOptions>);
constexpr std::array<std::string_view, 3> kAlgorithms{"rtn", "importance", "gptq"};
constexpr std::array<std::string_view, 2> kPresets{"safe", "small"};
constexpr double kPercentile = 99.9;
constexpr std::array<std::string_view, 3> kSaliencies{"magnitude", "wanda", "sparsegpt"};
constexpr std::array<std::string_view, 3> kParts{"ffn", "heads", "layers"};
constexpr std::array<std::string_view, 2> kDecompositions{"svd", "whitened"};
constexpr std::array<std::string_view, 2> kAllocations{"uniform", "global"};
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

// The same for an enumeration; the values are positions in `known`.
template <class Enum>
ConfigEntry choice_of(std::string_view name, std::span<const std::string_view> known, Enum& value) {
  return choice(name, known, static_cast<std::size_t>(value),
                [&value](std::size_t index) { value = static_cast<Enum>(index); });
}

ConfigEntry choice_of(std::string_view name, std::span<const std::string_view> known, bool& value) {
  return choice(name, known, value ? 1 : 0, [&value](std::size_t index) { value = index == 1; });
}

ConfigEntries entries_of(QuantizePass& pass) {
  return {format_entry("pass.spec", pass.spec),
          choice_of("pass.algo", kAlgorithms, pass.rounding),
          {"pass.clip", &pass.clip},
          number("pass.percentile", pass.percentile, 100.0),
          {"pass.act_order", &pass.act_order},
          number("pass.damp", pass.damp, 1e3),
          choice("pass.act", kActivations, pass.act_int8 ? 0 : 1,
                 [&pass](std::size_t index) { pass.act_int8 = index == 0; }),
          {.name = "pass.formats", .field = &pass.formats, .check = [&pass] {
             return check_formats(pass.formats);
           }}};
}

ConfigEntries entries_of(PrunePass& pass) {
  return {choice_of("pass.method", kSaliencies, pass.saliency),
          number("pass.sparsity", pass.sparsity, 1.0),
          choice_of("pass.allocation", kAllocations, pass.global),
          number("pass.damp", pass.damp, 1e3)};
}

ConfigEntries entries_of(StructurePass& pass) {
  return {choice_of("pass.group", kParts, pass.part),
          number("pass.ratio", pass.ratio, 1.0),
          {.name = "pass.round_to",
           .field = &pass.round_to,
           .check = in_range(pass.round_to, 1, Index{1} << 20)},
          {"pass.repair", &pass.repair},
          number("pass.damp", pass.damp, 1e3)};
}

ConfigEntries entries_of(LowRankPass& pass) {
  return {choice_of("pass.method", kDecompositions, pass.whitened),
          number("pass.rank", pass.rank, Index{1} << 24), number("pass.ratio", pass.ratio, 1.0),
          number("pass.loss", pass.loss, 1.0)};
}

ConfigEntries entries_of(PassOptions& options) {
  ConfigEntry kind = choice("pass.kind", kKinds, options.index(), [](std::size_t) {});
  kind.required = true;
  ConfigEntries entries{kind};
  std::visit(
      [&](auto& pass) {
        for (ConfigEntry& entry : entries_of(pass)) entries.push_back(std::move(entry));
        entries.push_back({"pass.apply", &pass.apply});
        entries.push_back({"pass.except", &pass.except});
      },
      options);
  return entries;
}

// Default options of a kind.
template <std::size_t I = 0>
PassOptions make_options(std::size_t kind) {
  if constexpr (I + 1 < std::variant_size_v<PassOptions>) {
    if (kind != I) return make_options<I + 1>(kind);
  }
  return PassOptions(std::in_place_index<I>);
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
           .check = in_range(recipe.calib_tokens, 2, Index{1'000'000'000})},
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
          {.name = "eval.tokens",
           .field = &recipe.eval_tokens,
           .check = in_range(recipe.eval_tokens, 2, Index{1'000'000'000'000})},
          number("gate.max_ppl_ratio", gate.max_ppl_ratio, 1e9),
          number("gate.max_kl", gate.max_kl, 1e9),
          number("gate.min_top1", gate.min_top1, 1.0),
          number("gate.min_speedup", gate.min_speedup, 1e9),
          number("gate.min_bytes_saved", gate.min_bytes_saved, Index{1'000'000'000'000'000}),
          choice("gate.on_fail", kOnFail, static_cast<std::size_t>(gate.on_fail),
                 [&gate](std::size_t index) { gate.on_fail = static_cast<OnFail>(index); })};
}

ConfigLists lists_of(Recipe& recipe) {
  ConfigList passes{
      .name = "pass",
      .append =
          [&recipe](const std::string& kind) {
            const auto found = std::ranges::find(kKinds, kind);
            recipe.passes.push_back(make_options(
                found == kKinds.end() ? 0 : static_cast<std::size_t>(found - kKinds.begin())));
            return entries_of(recipe.passes.back());
          },
      .kind = "kind",
      .kinds = kKinds};
  for (PassOptions& pass : recipe.passes) passes.items.push_back(entries_of(pass));
  return {passes};
}

}  // namespace

std::string_view name_of(Rounding rounding) {
  return kAlgorithms[static_cast<std::size_t>(rounding)];
}
std::string_view name_of(Saliency saliency) {
  return kSaliencies[static_cast<std::size_t>(saliency)];
}
std::string_view name_of(Part part) { return kParts[static_cast<std::size_t>(part)]; }

std::span<const std::string_view> preset_names() { return kPresets; }

Recipe make_preset(std::string_view name, bool gguf) {
  check_choice("preset", name, kPresets);
  Recipe recipe;
  if (name == "safe") {
    recipe.passes = {QuantizePass{.spec = gguf ? "q8_0" : "int8:row"}};
    return recipe;
  }
  recipe.passes = {QuantizePass{.spec = gguf ? "q4_0" : "int4:g64", .rounding = Rounding::Gptq}};
  recipe.allocate.bits = 4.5;
  if (!gguf) recipe.allocate.formats = {"int3:g64", "int4:g64", "int5:g64", "int6:g64", "int8:row"};
  return recipe;
}

QuantizePass* first_quantization(Recipe& recipe) {
  for (PassOptions& options : recipe.passes) {
    if (auto* const pass = std::get_if<QuantizePass>(&options)) return pass;
  }
  return nullptr;
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
    } else if (part == "percentile") {
      pass.percentile = kPercentile;
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

std::string_view prune_forms() {
  return "magnitude:S[:global], wanda:S or sparsegpt:S, which set a fraction S of the weights to "
         "0; "
         "ffn:R, heads:R or layers:R, which remove a fraction R of the inner layers of MLPs, of "
         "the query heads or of the layers, all but layers also with :norepair";
}

std::string_view low_rank_forms() {
  return "whitened:R or svd:R, where R is the rank as a fraction of the inputs, rank=N, or loss=X "
         "for the least rank that loses at most a fraction X of the outputs";
}

LowRankPass parse_low_rank_option(std::string_view text) {
  const std::string op = concat("--lowrank ", text);
  const auto colon = std::min(text.find(':'), text.size());
  const auto method = std::ranges::find(kDecompositions, text.substr(0, colon));
  LowRankPass pass;
  std::string_view value = text.substr(std::min(colon + 1, text.size()));
  double* target = &pass.ratio;
  double rank = 0;
  if (value.starts_with("rank=")) target = &rank;
  if (value.starts_with("loss=")) target = &pass.loss;
  value = value.substr(target == &pass.ratio ? 0 : 5);
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *target);
  const bool is_good = method != kDecompositions.end() && error == std::errc() &&
                       end == value.data() + value.size() && *target > 0 &&
                       *target < (target == &rank ? 1e7 : 1) &&
                       (target != &rank || rank == std::floor(rank));
  if (!is_good) fail_argument(op, concat(low_rank_forms(), "; R and X between 0 and 1"), text);
  pass.whitened = method != kDecompositions.begin();
  pass.rank = static_cast<Index>(rank);
  return pass;
}

PassOptions parse_prune_option(std::string_view text) {
  const std::string op = concat("--prune ", text);
  const auto first = std::min(text.find(':'), text.size());
  const auto second = std::min(text.find(':', std::min(first + 1, text.size())), text.size());
  const std::string_view name = text.substr(0, first), more = text.substr(second);
  double fraction = -1;
  const std::string_view digits =
      text.substr(std::min(first + 1, second), second - std::min(first + 1, second));
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), fraction);
  const bool is_fraction =
      error == std::errc() && end == digits.data() + digits.size() && fraction > 0 && fraction < 1;
  if (!is_fraction)
    fail_argument(op, concat("a fraction between 0 and 1 in ", prune_forms()), digits);
  const auto saliency = std::ranges::find(kSaliencies, name);
  if (saliency != kSaliencies.end()) {
    PrunePass pass{.saliency = static_cast<Saliency>(saliency - kSaliencies.begin()),
                   .sparsity = fraction};
    pass.global = pass.saliency == Saliency::Magnitude && more == ":global";
    if (more.empty() || pass.global) return pass;
  }
  const auto part = std::ranges::find(kParts, name);
  if (part != kParts.end()) {
    StructurePass pass{.part = static_cast<Part>(part - kParts.begin()), .ratio = fraction};
    pass.repair = more != ":norepair";
    if (more.empty() || (!pass.repair && pass.part != Part::Layers)) return pass;
  }
  fail_argument(op, prune_forms(), text);
}

}  // namespace hone::compress
