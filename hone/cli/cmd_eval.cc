// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "hone/app/eval_lm.h"
#include "hone/app/eval_table.h"
#include "hone/app/vision_folder.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/runtime_options.h"
#include "hone/cli/torch_runs.h"
#include "hone/cli/trace_options.h"
#include "hone/cli/validators.h"
#include "hone/cli/weight_options.h"
#include "hone/core/check.h"

namespace hone::cli {
namespace {

struct EvalCommand {
  app::EvalOptions text;
  app::VisionEvalOptions vision;
  std::string model, data, baseline, ids_file, report;
  RuntimeChoice runtime;
  WeightChoice weights;
  // Options for one kind of model only.
  std::vector<CLI::Option*> text_options, vision_options;
  CLI::Option* max_tokens = nullptr;
  bool all = false;
};

void add_options(CLI::App& verb, EvalCommand& command) {
  verb.add_option("model", command.model,
                  "Language model (folder, *.gguf or llama2.c *.bin), or folder of a classifier; "
                  "for a run of `hone train`, its folder model/")
      ->required();
  auto* data = verb.add_option_group("data", "Exactly one of these options");
  data->add_option("--data", command.data,
                   "UTF-8 text file; for a classifier, a folder of images (its held-out part is "
                   "used), or leaves: the synthetic leaf images of its training");
  command.text_options.push_back(
      data->add_option("--token-ids", command.ids_file, "FILE with a JSON array of token ids"));
  data->require_option(1);
  verb.add_flag("--all", command.all,
                "Use all data: every image of a folder instead of the held-out part, also the "
                "training images of leaves, and every token of a text (the default)");
  verb.add_option("--baseline", command.baseline,
                  "Model to compare with, token by token or image by image");
}

void add_text_options(CLI::App& verb, EvalCommand& command) {
  const auto keep = [&](CLI::Option* option) { command.text_options.push_back(option); };
  keep(verb.add_option("--tokenizer", command.text.tokenizer,
                       "Tokenizer to use instead of the model's own, if any"));
  command.max_tokens = verb.add_option("--max-tokens", command.text.max_tokens,
                                       "Use only the first N tokens of the text (default: all)")
                           ->check(whole_number(1));
  keep(command.max_tokens);
  keep(verb.add_option("--window", command.text.window,
                       "Tokens per window (default: the model's context, at most 1024)")
           ->check(whole_number(2)));
  add_runtime_options(verb, command.runtime);
  add_weight_options(verb, command.weights);
  for (const char* name : {"--kv", "--act", "--weights", "--pack-cache"}) {
    keep(verb.get_option(name));
  }
}

void add_vision_options(CLI::App& verb, EvalCommand& command) {
  const auto keep = [&](CLI::Option* option) { command.vision_options.push_back(option); };
  keep(verb.add_option("--ece-bins", command.vision.ece_bins,
                       "For a classifier: number of bins of the calibration error")
           ->check(whole_number(1, 1000))
           ->capture_default_str());
  keep(verb.add_option("--neighbors", command.vision.neighbors,
                       "For a ResNet: number of nearest images that vote on each image's class")
           ->check(whole_number(1))
           ->capture_default_str());
  keep(verb.add_option("--report", command.report,
                       "For a classifier: write charts and the parts of images to FILE as HTML")
           ->check(not_empty()));
}

void run_text_eval(Context& context, EvalCommand& command) {
  app::EvalOptions& job = command.text;
  job.model = command.model;
  job.baseline = command.baseline;
  job.data_name = command.data + command.ids_file;
  if (command.all) {
    refuse_options({command.max_tokens}, "It contradicts --all.");
    job.max_tokens = 0;
  }
  if (!command.data.empty()) job.documents = app::read_eval_text(command.data);
  if (!command.ids_file.empty()) job.token_ids = read_token_ids(command.ids_file);
  job.kv = command.runtime.kv_dtype();
  job.activations = command.runtime.activations();
  job.weights = command.weights.options();
  const Interrupt interrupt;
  job.stop = Interrupt::token();
  const app::EvalResult result = app::evaluate(job, context.executor());
  context.finish(result.document(), [&] { std::fputs(app::to_table(result).c_str(), stdout); });
}

void run_eval(Context& context, EvalCommand& command) {
  if (app::is_vision_model(command.model)) {
    refuse_options(command.text_options, concat("This option is for language models, and ",
                                                command.model, " is a classifier of images."));
    command.vision.model = command.model;
    command.vision.baseline = command.baseline;
    command.vision.data = command.data;
    command.vision.report = command.report;
    command.vision.all = command.all;
    HONE_REQUIRE(run_vision_eval != nullptr, "eval",
                 "A classifier of images was not left to hone-torch.");
    return run_vision_eval(command.vision, context);
  }
  try {
    refuse_options(command.vision_options,
                   concat("This option is for classifiers that `hone train vision` wrote, and ",
                          command.model, " is none."));
    HONE_REQUIRE(!app::is_vision_model(command.baseline), "baseline",
                 "This is a classifier of images, and the model is none.");
    run_text_eval(context, command);
  } catch (const Error& error) {
    // Options and data of a damaged classifier are not what is wrong.
    if (error.category() != ErrorCategory::Cancelled) {
      app::check_language_model(command.model, command.text.tokenizer);
    }
    throw;
  }
}

}  // namespace

void add_eval(CLI::App& program, Context& context) {
  CLI::App* verb = program.add_subcommand(
      "eval", "Measure a language model on held-out text, or a classifier on held-out images");
  auto command = std::make_shared<EvalCommand>();
  add_options(*verb, *command);
  add_text_options(*verb, *command);
  add_vision_options(*verb, *command);
  add_trace_option(*verb, context);
  verb->callback([&context, command] { run_eval(context, *command); });
}

}  // namespace hone::cli
