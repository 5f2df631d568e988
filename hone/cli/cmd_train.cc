// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "hone/app/torch/train_lm.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/validators.h"
#include "hone/core/check.h"

namespace hone::cli {
namespace {

struct Options {
  std::string config, data, out = "out";
  std::vector<std::string> set;
  double minutes = 0;
  bool resume = false, fresh = false;
};

// Later wins: defaults, the file (on resume without one: the run's own train.toml), --data, --seed
// (trainer.seed), --set.
trainer::LmConfig config_of(const Options& options, const Context& context) {
  trainer::LmConfig config;
  const std::filesystem::path recorded = std::filesystem::path(options.out) / "train.toml";
  if (!options.config.empty()) {
    trainer::read_config(config, options.config);
  } else if (options.resume && std::filesystem::exists(recorded)) {
    trainer::read_config(config, recorded);
  }
  if (!options.data.empty()) config.data.path = options.data;
  if (context.common.seed) config.trainer.seed = static_cast<Index>(*context.common.seed);
  for (const std::string& assignment : options.set) trainer::set_config(config, assignment);
  return config;
}

void print_result(const app::TrainLmResult& result) {
  std::printf("%lld steps in %.1f s (%.0f tokens/s), %lld parameters\n",
              static_cast<long long>(result.steps), result.seconds, result.tokens_per_s,
              static_cast<long long>(result.parameters));
  std::printf("training loss %.4f, held-out loss %.4f nats, %.4f bits per byte\n",
              result.train_loss, result.val_loss, result.val_bits_per_byte);
  std::printf("model: %s\n", result.model.c_str());
}

void run_lm(const Options& options, Context& context) {
  const Interrupt interrupt;
  const app::TrainLmResult result = app::train_lm({.config = config_of(options, context),
                                                   .out = options.out,
                                                   .resume = options.resume,
                                                   .fresh = options.fresh,
                                                   .minutes = options.minutes,
                                                   .threads = context.common.threads,
                                                   .stop = &Interrupt::flag()});
  context.finish(app::to_json(result), [&] { print_result(result); });
}

}  // namespace

void add_train(CLI::App& program, Context& context) {
  CLI::App* verb = program.add_subcommand("train", "Train a model");
  verb->require_subcommand(1);
  auto options = std::make_shared<Options>();
  CLI::App* lm = verb->add_subcommand("lm", "Train a small language model, from its tokeniser on");
  lm->add_option("--config", options->config, "TOML file (docs/config.md)");
  lm->add_option("--set", options->set,
                 "key=value over file, --data and --seed, e.g. lr.peak=0.002");
  lm->add_option("--data", options->data,
                 "Text file, folder of texts or JSON lines (default: embedded stories)");
  lm->add_option("--out", options->out, "Folder of the run")->capture_default_str();
  lm->add_option("--minutes", options->minutes,
                 "Fix the number of steps from a few measured ones, to end in about this time")
      ->check(positive_number());
  CLI::Option* resume =
      lm->add_flag("--resume", options->resume, "Go on from the newest whole checkpoint in --out");
  lm->add_flag("--fresh", options->fresh, "Train again although a run is in --out, and replace it")
      ->excludes(resume);
  lm->callback([options, &context] { run_lm(*options, context); });
}

}  // namespace hone::cli
