// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>

#include "hone/app/compress/compress.h"
#include "hone/app/vision_folder.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/torch_runs.h"
#include "hone/cli/trace_options.h"
#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/measure/measure.h"

namespace hone::cli {
namespace {

struct CompressCommand {
  std::string model, out, to, tokenizer, recipe, on_fail, calib;
  Index tokens = 0, images = 0;
  std::string size, preset;
  double bits = 0;
  bool requantize = false, plan = false;
  std::vector<std::string> quantize, prune, low_rank;
  std::vector<std::filesystem::path> data;
};

// "90MB", "1.5GB" or "86MiB" in 10^6 bytes.
double parse_megabytes(const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"MB", 1}, {"GB", 1e3}, {"MiB", 1.048576}, {"GiB", 1073.741824}};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const auto& [name, megabytes] : kUnits) {
    if (error == std::errc() && unit == name && value > 0 && value < 1e9) return value * megabytes;
  }
  fail_argument("--size", "a size such as 90MB, 1.5GB, 86MiB or 1GiB", text);
}

bool is_gguf(const CompressCommand& options) {
  return options.to == "gguf" ||
         (options.to.empty() && std::filesystem::path(options.out).extension() == ".gguf");
}

compress::Recipe recipe_of(const CompressCommand& options) {
  HONE_CHECK(std::isfinite(options.bits), "--bits", "a number", options.bits);
  const bool has_budget = !options.size.empty() || options.bits > 0;
  const bool has_passes = !options.preset.empty() || !options.quantize.empty() ||
                          !options.prune.empty() || !options.low_rank.empty();
  HONE_CHECK(options.recipe.empty() || !has_passes, "compress",
             "either --recipe or options that say what to do", "both");
  HONE_REQUIRE(!options.recipe.empty() || has_passes || has_budget, "compress",
               "Say what to do by --quantize, --prune, --lowrank, --size, --bits, --preset or "
               "--recipe.");
  compress::Recipe recipe;
  if (!options.recipe.empty()) recipe = compress::read_recipe(options.recipe);
  for (const std::string& text : options.prune)
    recipe.passes.push_back(compress::parse_prune_option(text));
  for (const std::string& text : options.low_rank)
    recipe.passes.push_back(compress::parse_low_rank_option(text));
  if (!options.preset.empty()) {
    const compress::Recipe preset = compress::make_preset(options.preset, is_gguf(options));
    recipe.passes.insert(recipe.passes.end(), preset.passes.begin(), preset.passes.end());
    recipe.allocate = preset.allocate;
  }
  for (const std::string& text : options.quantize)
    recipe.passes.push_back(compress::parse_quantize_option(text));
  if (has_budget) {
    recipe.allocate.size_mb = options.size.empty() ? 0 : parse_megabytes(options.size);
    recipe.allocate.bits = options.bits;
    if (compress::first_quantization(recipe) == nullptr)
      recipe.passes.push_back(
          compress::QuantizePass{.spec = "q4_0", .rounding = compress::Rounding::Gptq});
  }
  if (!options.calib.empty()) recipe.calib_data = options.calib;
  if (options.tokens > 0) recipe.calib_tokens = options.tokens;
  if (options.requantize) recipe.requantize = true;
  // A spec on the command line is a decision, so gates are reported but not enforced.
  if (options.recipe.empty()) recipe.gate.on_fail = compress::OnFail::Keep;
  if (!options.on_fail.empty()) {
    recipe.gate.on_fail = options.on_fail == "keep"   ? compress::OnFail::Keep
                          : options.on_fail == "stop" ? compress::OnFail::Stop
                                                      : compress::OnFail::Skip;
  }
  return recipe;
}

// Options of language models only.
constexpr std::array kTextOptions{"--to",        "--lowrank", "--calib",  "--calib-tokens",
                                  "--size",      "--bits",    "--plan",   "--requantize",
                                  "--tokenizer", "--recipe",  "--preset", "--on-fail"};

void run_vision(const CLI::App& verb, const CompressCommand& options, Context& context) {
  for (const char* name : kTextOptions) {
    HONE_REQUIRE(verb.count(name) == 0, name,
                 concat("This option is for language models, and ", options.model,
                        " is a classifier of images."));
  }
  HONE_CHECK(options.data.size() <= 1, "--data", "one folder of images for a classifier",
             options.data.size());
  HONE_REQUIRE(run_vision_compress != nullptr, "compress",
               "A classifier of images was not left to hone-torch.");
  app::CompressVisionOptions job;
  job.model = options.model;
  job.out = options.out;
  job.prune = options.prune;
  job.quantize = options.quantize;
  if (!options.data.empty()) job.data = options.data.front().string();
  if (verb.count("--calib-images") > 0) job.calibration_images = options.images;
  run_vision_compress(job, context);
}

void run(const CLI::App& verb, const CompressCommand& options, Context& context) {
  if (app::is_vision_model(options.model)) return run_vision(verb, options, context);
  HONE_REQUIRE(verb.count("--calib-images") == 0, "--calib-images",
               "This option is for classifiers of images.");
  const Interrupt interrupt;
  const auto measurer = measure::make_measurer();
  const app::CompressOutcome outcome = app::compress_model({.model = options.model,
                                                            .out = options.out,
                                                            .to = options.to,
                                                            .tokenizer = options.tokenizer,
                                                            .recipe = recipe_of(options),
                                                            .recipe_file = options.recipe,
                                                            .data = options.data,
                                                            .plan = options.plan,
                                                            .stop = Interrupt::token()},
                                                           context.executor(), *measurer);
  context.finish(outcome.document, [&] { std::fputs(app::to_table(outcome).c_str(), stdout); });
  if ((outcome.written || options.plan) && outcome.gates_held) return;
  log_error(concat("[compress] At least one pass was not applied",
                   outcome.written ? "." : ", so nothing was written."));
  context.status = 1;
}

}  // namespace

void add_compress(CLI::App& program, Context& context) {
  auto options = std::make_shared<CompressCommand>();
  CLI::App* verb =
      program.add_subcommand("compress", "Make a smaller copy of a language model or a classifier");
  verb->add_option(
          "MODEL", options->model,
          "Language model, or folder of a classifier that `hone train vision` wrote; it is not "
          "modified")
      ->required();
  verb->add_option("-o,--out", options->out, "Compressed copy: a folder or *.gguf")->required();
  verb->add_option("--to", options->to,
                   "Format of the copy: hone (the default of a folder), gguf, or hf, which has no "
                   "codes, so that quantized matrices are written in floating point")
      ->check(CLI::IsMember({"hone", "hf", "gguf"}));
  verb->add_option("--prune", options->prune,
                   concat("Removal of weights, before quantization, for example sparsegpt:0.5 or "
                          "ffn:0.25; ",
                          compress::prune_forms(), "; of a classifier: ", app::kVisionPruneForms));
  verb->add_option("--quantize", options->quantize,
                   concat("Quantization of the weights, for example q4_0:gptq; ",
                          compress::weight_format_forms(),
                          "; then :importance or :gptq, which need a calibration text; :noclip "
                          "disables the search of scales, :percentile clips weights above the "
                          "99.9th of each block instead; of a classifier also f16, bf16, and "
                          "PATTERN=FORMAT for some layers, where FORMAT may be float"));
  verb->add_option("--lowrank", options->low_rank,
                   concat("Factorization of products into two thin matrices, for hone's format "
                          "only: ",
                          compress::low_rank_forms()));
  verb->add_option(
      "--calib", options->calib,
      "Calibration text, which all methods but plain rounding and magnitude need: a file, "
      "a folder or JSON lines (default: the model writes one)");
  verb->add_option("--calib-tokens", options->tokens,
                   "Number of its tokens that are used (default: the recipe's, or 16384)")
      ->check(CLI::Range(Index{2}, Index{1'000'000'000}));
  verb->add_option(
      "--size", options->size,
      "Size of the file, for example 90MB: hone measures how sensitive the model is "
      "to each group of matrices and gives each the format that is best for the whole");
  verb->add_option("--bits", options->bits, "The same for bits per weight, for example 4.5")
      ->check(CLI::Range(1.0, 32.0))
      ->excludes("--size");
  verb->add_flag("--plan", options->plan,
                 "Only forecast the size, memory and time; for --size or --bits also choose the "
                 "formats, and print the recipe");
  verb->add_flag("--requantize", options->requantize,
                 "Decode matrices that are quantized already and quantize them again");
  verb->add_option("--tokenizer", options->tokenizer,
                   "Tokenizer to use instead of the model's own, if any");
  verb->add_option("--recipe", options->recipe, "TOML recipe (docs/compression.md)");
  verb->add_option("--preset", options->preset,
                   "safe: 8 bits, rounded; small: about 4.5 bits with GPTQ, and more where the "
                   "model is sensitive")
      ->check(CLI::IsMember(std::vector<std::string>(compress::preset_names().begin(),
                                                     compress::preset_names().end())))
      ->excludes("--quantize")
      ->excludes("--size")
      ->excludes("--bits")
      ->excludes("--recipe");
  verb->add_option(
      "--data", options->data,
      "Text for the quality card, which uses its held-out part; may be given several times "
      "(default: embedded stories). For a classifier: a folder of labeled images, or leaves; its "
      "training part calibrates, and its held-out part measures");
  verb->add_option("--calib-images", options->images,
                   "For a classifier: number of training images that calibrate (default: 512)")
      ->check(CLI::Range(Index{1}, Index{1'000'000}));
  verb->add_option("--on-fail", options->on_fail,
                   "What to do if a gate fails: skip the pass, stop, or keep the pass (default: "
                   "the recipe's setting, or keep without a recipe)")
      ->check(CLI::IsMember({"skip", "stop", "keep"}));
  add_trace_option(*verb, context);
  verb->callback([options, &context, verb] { run(*verb, *options, context); });
}

}  // namespace hone::cli
