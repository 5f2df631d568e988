// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hone/compress/format/weight_format.h"

namespace hone::compress {

enum class OnFail { Skip, Stop, Keep };

struct Gate {
  double max_ppl_ratio = 1.02;  // compared with the interval's upper end; 0 disables it
  double max_kl = 0;            // 0 disables it
  double min_top1 = 0;          // 0 disables it
  double min_speedup = 1.0;     // compared with the interval's lower end; 0 disables it
  Index min_bytes_saved = 0;
  OnFail on_fail = OnFail::Skip;
};

// How codes are chosen: the nearest level with scales that minimize the error of the weights (Rtn)
// or of the outputs as far as columns alone tell it (Importance), or with error feedback (Gptq).
// The last two need a calibration text.
enum class Rounding { Rtn, Importance, Gptq };
std::string_view name_of(Rounding rounding);  // "rtn", …

struct QuantizePass {
  std::string spec = "int8:row";  // a name for parse_weight_format()
  Rounding rounding = Rounding::Rtn;
  bool clip = true;
  bool act_int8 = true;   // whether products quantize their activations to int8 in groups of 32
  bool act_order = true;  // Gptq: columns with larger inputs are rounded first
  double damp = 0.01;     // Gptq: added to the diagonal, as a fraction of its mean
  std::vector<std::string> apply{"*"}, except{};  // globs over tensor names
  // "GLOB=FORMAT" for tensors that get another format, the embedding and the head included; the
  // last one that matches wins.
  std::vector<std::string> formats{};
};

// A budget for which the first pass chooses its `formats`. At most one of size and bits is set.
struct Allocation {
  double size_mb = 0;  // of the weights' file in 10^6 bytes
  double bits = 0;     // per weight of the matrices that get a format
  std::vector<std::string> formats{"q3_k", "iq4_nl", "q4_0", "q4_k", "q4_1",
                                   "q5_0", "q5_k",   "q5_1", "q6_k", "q8_0"};  // to choose from
  Index tokens = 512;  // of the calibration text on which sensitivities are measured

  bool is_wanted() const { return size_mb > 0 || bits > 0; }
};

// A recipe, read from TOML (docs/compression.md lists every key) or built from command-line
// options.
struct Recipe {
  std::vector<std::string> keep_float{"*norm*", "*bias*"};
  // A spec, "float", or "auto": 8 bits in the kind of format that a pass makes.
  std::string head = "auto", embedding = "auto";
  // Whether passes decode matrices that are quantized already and quantize them again. If not, such
  // matrices keep their codes.
  bool requantize = false;
  std::string calib_data;                          // if empty, the model writes the text itself
  Index calib_tokens = 16384, calib_window = 512;  // at most so many, in texts of so many
  Index calib_seed = 0;
  std::string eval_data;  // if empty, the caller chooses
  Index eval_tokens = 20000;
  Gate gate;
  Allocation allocate;
  std::vector<QuantizePass> passes;
};

// Throws Error{InvalidArgument} that names the file and the line for an unknown key (with the
// nearest known one), a wrong type or a value out of range.
Recipe parse_recipe(std::string_view toml, const std::string& where);
Recipe read_recipe(const std::filesystem::path& path);
// TOML that parses back to the same recipe.
std::string to_toml(const Recipe& recipe);

// Whether a pass needs the inputs of layers.
bool needs_calibration(const Recipe& recipe);

// Parses a format with options: "int4:g32", "q4_0:gptq", "int8:row:noclip", "int4:g64:importance".
// Throws Error{InvalidArgument} that lists the formats.
QuantizePass parse_quantize_option(std::string_view text);

}  // namespace hone::compress
