// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
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
  double percentile = 0;  // if not 0, weights are clipped at it, in percent (FitOptions)
  bool act_int8 = true;   // whether products quantize their activations to int8 in groups of 32
  bool act_order = true;  // Gptq: columns with larger inputs are rounded first
  double damp = 0.01;     // Gptq: added to the diagonal, as a fraction of its mean
  std::vector<std::string> apply{"*"}, except{};  // globs over tensor names
  // "GLOB=FORMAT" for tensors that get another format, the embedding and the head included; the
  // last one that matches wins.
  std::vector<std::string> formats{};
};

// Which weights are set to 0: those of least size |w|; of least |w| ‖x‖ among the weights of an
// output, where x are the inputs that a weight sees (Wanda: Sun et al., "A simple and effective
// pruning approach for large language models", 2024); or of least effect on the outputs, where the
// remaining weights make up for those removed (SparseGPT: Frantar and Alistarh, 2023).
enum class Saliency { Magnitude, Wanda, SparseGpt };
std::string_view name_of(Saliency saliency);  // "magnitude", …

struct PrunePass {
  Saliency saliency = Saliency::Wanda;
  double sparsity = 0.5;  // the fraction of the weights of each matrix, rounded to a whole number
  bool global = false;    // Magnitude: of the weights of all matrices together
  double damp = 0.01;     // SparseGpt: as in QuantizePass
  std::vector<std::string> apply{"*"}, except{};
};

// Parts of a model that are removed as a whole: columns of the inner layer of MLPs, query heads
// (the same number for each key head), or layers.
enum class Part { Ffn, Heads, Layers };
std::string_view name_of(Part part);  // "ffn", …

struct StructurePass {
  Part part = Part::Ffn;
  double ratio = 0.25;  // the fraction that is removed
  Index round_to = 32;  // Ffn: the remaining width is a multiple, where the width allows it
  bool repair = true;   // whether the product behind the part is fitted to what remains
  double damp = 0.3;    // of the diagonal of the fit, which is added to it
  std::vector<std::string> apply{"*"}, except{};
};

// Replaces products by two thin matrices each. At most one of rank, ratio and loss is not 0.
struct LowRankPass {
  // Whether the error of the outputs is minimized for the inputs of the calibration text, instead
  // of the error of the weights.
  bool whitened = true;
  Index rank = 0;
  double ratio = 0;  // the rank as a fraction of the inputs
  double loss = 0;   // the least rank whose error of outputs is at most this, as a fraction of them
  std::vector<std::string> apply{"*"}, except{};
};

using PassOptions = std::variant<QuantizePass, PrunePass, StructurePass, LowRankPass>;

// A budget for which the first pass that quantizes chooses its `formats`. At most one of size and
// bits is set.
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
  std::vector<std::string> eval_data;  // texts; if empty, the caller chooses
  Index eval_tokens = 10000;           // of each text, at most
  Gate gate;
  Allocation allocate;
  std::vector<PassOptions> passes;
};

// Throws Error{InvalidArgument} that names the file and the line for an unknown key (with the
// nearest known one), a wrong type or a value out of range.
Recipe parse_recipe(std::string_view toml, const std::string& where);
Recipe read_recipe(const std::filesystem::path& path);
// TOML that parses back to the same recipe.
std::string to_toml(const Recipe& recipe);

// Recipes by name: "safe", 8 bits by rounding; "small", 4.5 bits with GPTQ, where hone measures
// which matrices get more and which get less. `gguf` chooses among GGUF's formats.
std::span<const std::string_view> preset_names();
Recipe make_preset(std::string_view name, bool gguf);

// The first pass that quantizes; null if there is none.
QuantizePass* first_quantization(Recipe& recipe);

// Parses a format with options: "int4:g32", "q4_0:gptq", "int8:row:noclip", "int8:row:percentile",
// which is the 99.9th, "int4:g64:importance". Throws Error{InvalidArgument} that lists the formats.
QuantizePass parse_quantize_option(std::string_view text);
// Parses what is removed and how much: "magnitude:0.5", "magnitude:0.5:global", "wanda:0.5",
// "sparsegpt:0.5", "ffn:0.25", "heads:0.33", both also with ":norepair", or "layers:0.1".
// Throws Error{InvalidArgument} that lists the forms.
PassOptions parse_prune_option(std::string_view text);
std::string_view prune_forms();
// Parses "whitened:R" or "svd:R", where R is a fraction of the inputs, "rank=N" or "loss=X". Throws
// Error{InvalidArgument} that lists the forms.
LowRankPass parse_low_rank_option(std::string_view text);
std::string_view low_rank_forms();

}  // namespace hone::compress
