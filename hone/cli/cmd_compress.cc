// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "hone/app/compress.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/trace_options.h"
#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/measure/measure.h"

namespace hone::cli {
namespace {

struct CompressCommand {
  std::string model, out, tokenizer, recipe, data, on_fail, calib;
  Index tokens = 0;
  bool requantize = false;
  std::vector<std::string> quantize;
};

compress::Recipe recipe_of(const CompressCommand& options) {
  HONE_CHECK(options.recipe.empty() != options.quantize.empty(), "compress",
             "either --recipe or --quantize", options.recipe.empty() ? "neither" : "both");
  compress::Recipe recipe;
  if (!options.recipe.empty()) recipe = compress::read_recipe(options.recipe);
  for (const std::string& text : options.quantize) {
    recipe.passes.push_back(compress::parse_quantize_option(text));
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

void run(const CompressCommand& options, Context& context) {
  const Interrupt interrupt;
  const auto measurer = measure::make_measurer();
  const app::CompressOutcome outcome = app::compress_model({.model = options.model,
                                                            .out = options.out,
                                                            .tokenizer = options.tokenizer,
                                                            .recipe = recipe_of(options),
                                                            .recipe_file = options.recipe,
                                                            .data = options.data,
                                                            .stop = Interrupt::token()},
                                                           context.executor(), *measurer);
  context.finish(outcome.document, [&] { std::fputs(app::to_table(outcome).c_str(), stdout); });
  if (outcome.written && outcome.gates_held) return;
  log_error(concat("[compress] At least one pass was not applied",
                   outcome.written ? "." : ", so nothing was written."));
  context.status = 1;
}

}  // namespace

void add_compress(CLI::App& program, Context& context) {
  auto options = std::make_shared<CompressCommand>();
  CLI::App* verb = program.add_subcommand("compress", "Make a smaller copy of a model");
  verb->add_option("MODEL", options->model, "Model to compress; it is not modified")->required();
  verb->add_option("-o,--out", options->out,
                   "Compressed copy: a folder (hone's artifact) or *.gguf")
      ->required();
  verb->add_option("--quantize", options->quantize,
                   concat("Quantization of the weights, for example q4_0:gptq; ",
                          compress::weight_format_forms(),
                          "; then :importance or :gptq, which need a calibration text; :noclip "
                          "disables the search of scales"));
  verb->add_option("--calib", options->calib,
                   "Text for :importance and :gptq: a file, a folder or JSON lines (default: the "
                   "model writes one)");
  verb->add_option("--calib-tokens", options->tokens,
                   "Number of its tokens that are used (default: the recipe's, or 16384)")
      ->check(CLI::Range(Index{1}, Index{1'000'000'000}));
  verb->add_flag("--requantize", options->requantize,
                 "Decode matrices that are quantized already and quantize them again");
  verb->add_option("--tokenizer", options->tokenizer,
                   "Tokenizer to use instead of the model's own, if any");
  verb->add_option("--recipe", options->recipe, "TOML recipe (docs/compression.md)");
  verb->add_option(
      "--data", options->data,
      "Text for the quality card, which uses its held-out part (default: embedded stories)");
  verb->add_option("--on-fail", options->on_fail,
                   "What to do if a gate fails: skip the pass, stop, or keep the pass (default: "
                   "the recipe's setting, or keep with --quantize)")
      ->check(CLI::IsMember({"skip", "stop", "keep"}));
  add_trace_option(*verb, context);
  verb->callback([options, &context] { run(*options, context); });
}

}  // namespace hone::cli
