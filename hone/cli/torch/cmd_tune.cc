// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>

#include "hone/app/torch/tune/tune_layers.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/trace_options.h"
#include "hone/cli/validators.h"
#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::cli {
namespace {

struct TuneCommand {
  std::string model, space, data, out;
  bool check = false;
};

void run(const TuneCommand& options, Context& context) {
  const Interrupt interrupt;
  app::TuneJob job{.model = options.model,
                   .space = options.space,
                   .out = options.check ? options.model : options.out,
                   .data = options.data,
                   .seed = context.common.seed,
                   .threads = context.common.threads,
                   .stop = Interrupt::token()};
  if (!options.check) {
    HONE_REQUIRE(!options.space.empty(), "--space", "A search needs a file of what to try.");
    HONE_REQUIRE(!options.out.empty(), "--out", "A search needs a folder to write to.");
  }
  const app::TuneOutcome outcome = options.check ? app::check_tuned(job) : app::tune_layers(job);
  context.finish(outcome.document, [&] { std::fputs(outcome.text.c_str(), stdout); });
  if (outcome.is_met) return;
  log_error(options.check ? "[tune] The model does not meet the limit that its search recorded."
                          : "[tune] The space is infeasible, so no model was written.");
  context.status = 1;
}

}  // namespace

void add_tune(CLI::App& program, Context& context) {
  auto options = std::make_shared<TuneCommand>();
  CLI::App* verb = program.add_subcommand(
      "tune", "Search for replacements of a model's layers and measure them");
  verb->add_option("MODEL", options->model,
                   "Language model (folder, GGUF or llama2.c file, or run) or folder of a "
                   "classifier; it is not modified. With --check, the folder of a search")
      ->required();
  CLI::Option* space = verb->add_option("--space", options->space,
                                        "TOML file with the search space (docs/guide-layers.md)");
  verb->add_option("--data", options->data,
                   "UTF-8 text, or stories for the embedded stories; for a classifier, a folder of "
                   "images (its held-out part is used), or leaves")
      ->required()
      ->check(not_empty());
  CLI::Option* out =
      verb->add_option("-o,--out", options->out, "Folder for the search, its result and the model");
  verb->add_flag("--check", options->check,
                 "Only measure the model of a finished search again and check its limit")
      ->excludes(space)
      ->excludes(out);
  add_trace_option(*verb, context);
  verb->callback([options, &context] { run(*options, context); });
}

}  // namespace hone::cli
