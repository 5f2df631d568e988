// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/format/quant_format.h"

namespace hone::compress {

// The specs that passes support. An option may add ":noclip" and the name of an algorithm.
inline constexpr std::string_view kPassSpecs =
    "int<2-8>:<row|gN>[:sym|:asym][:f32|:f16], N a multiple of 16";

enum class OnFail { Skip, Stop, Keep };

struct Gate {
  double max_ppl_ratio = 1.02;  // compared with the interval's upper end; 0 disables it
  double max_kl = 0;            // 0 disables it
  double min_top1 = 0;          // 0 disables it
  double min_speedup = 1.0;     // compared with the interval's lower end; 0 disables it
  Index min_bytes_saved = 0;
  OnFail on_fail = OnFail::Skip;
};

struct QuantizePass {
  QuantSpec spec;
  std::string algo = "rtn";
  bool clip = true;
  bool act_int8 = true;  // whether products quantize their activations to int8 in groups of 32
  std::vector<std::string> apply{"*"}, except;  // globs over tensor names
};

// A recipe, read from TOML (docs/compression.md lists every key) or built from command-line
// options.
struct Recipe {
  std::vector<std::string> keep_float{"*norm*", "*bias*"};
  std::string head = "int8:row", embedding = "int8:row";  // a spec, or "float"
  std::string eval_data;                                  // if empty, the caller chooses
  Index eval_tokens = 20000;
  Gate gate;
  std::vector<QuantizePass> passes;
};

// Throws Error{InvalidArgument} that names the file and the line for an unknown key (with the
// nearest known one), a wrong type or a value out of range.
Recipe parse_recipe(std::string_view toml, const std::string& where);
Recipe read_recipe(const std::filesystem::path& path);
// TOML that parses back to the same recipe.
std::string to_toml(const Recipe& recipe);

// Parses "int4:g32", "int8:row:noclip" or "int4:g128:sym:rtn". Throws Error{InvalidArgument} that
// lists kPassSpecs.
QuantizePass parse_quantize_option(std::string_view text);

}  // namespace hone::compress
