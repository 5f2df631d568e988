// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/quant_format.h"

namespace hone::compress {

// What a pass can make; an option may add ":noclip", and the algorithm's name.
inline constexpr std::string_view kPassSpecs =
    "int<2-8>:<row|gN>[:sym|:asym][:f32|:f16], N a multiple of 16";

enum class OnFail { Skip, Stop, Keep };

struct Gate {
  double max_ppl_ratio = 1.02;  // compared with the interval's upper end; 0: off
  double max_kl = 0;            // 0: off
  double min_top1 = 0;          // 0: off
  double min_speedup = 1.0;     // compared with the interval's lower end; 0: off
  Index min_bytes_saved = 0;
  OnFail on_fail = OnFail::Skip;
};

struct QuantizePass {
  QuantSpec spec;
  std::string algo = "rtn";
  bool clip = true;
  bool act_int8 = true;  // products quantize their activations to int8 per 32
  std::vector<std::string> apply{"*"}, except;  // globs over tensor names
};

// The TOML recipe (docs/compression.md lists every key); command-line options build the same.
struct Recipe {
  std::vector<std::string> keep_float{"*norm*", "*bias*"};
  std::string head = "int8:row", embedding = "int8:row";  // a spec, or "float"
  std::string eval_data;                                  // empty: the caller's default
  Index eval_tokens = 20000;
  Gate gate;
  std::vector<QuantizePass> passes;
};

// Error{InvalidArgument} with file, line and the nearest legal name for an unknown key, a wrong
// type or a value out of range.
Recipe parse_recipe(std::string_view toml, const std::string& where);
Recipe read_recipe(const std::filesystem::path& path);
// A recipe that parses back to the same.
std::string to_toml(const Recipe& recipe);

// "int4:g32", "int8:row:noclip", "int4:g128:sym:rtn". Error{InvalidArgument} with kPassSpecs.
QuantizePass parse_quantize_option(std::string_view text);

}  // namespace hone::compress
