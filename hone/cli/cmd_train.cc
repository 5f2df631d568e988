// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "hone/app/torch/memory_lm.h"
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
  bool resume = false, fresh = false, memory_report = false, find_batch_size = false;
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

void print_memory(const app::MemoryLmResult& result) {
  std::printf("%lld parameters, %lld windows of %lld tokens a micro-batch; MB of tensors\n",
              static_cast<long long>(result.parameters), static_cast<long long>(result.micro_batch),
              static_cast<long long>(result.positions));
  std::printf("%-16s %10s %10s\n", "", "predicted", "measured");
  const auto print = [](const char* name, Index predicted, Index measured) {
    std::printf("%-16s %10.2f %10.2f\n", name, static_cast<double>(predicted) / 1e6,
                static_cast<double>(measured) / 1e6);
  };
  const trainer::MemoryParts &a = result.predicted, &b = result.measured;
  print("weights", a.weights, b.weights);
  print("gradients", a.gradients, b.gradients);
  print("optimiser state", a.state, b.state);
  print("activations", a.activations, b.activations);
  print("workspace", a.workspace, b.workspace);
  print("together", a.total(), b.total());
  std::printf("in RAM, with program and text: %.0f MB\n",
              static_cast<double>(result.resident) / 1e6);
  if (!result.search) return;
  std::printf("largest trainer.micro_batch within %.0f MB: %lld (%zu steps tried)\n",
              static_cast<double>(result.search->limit_bytes) / 1e6,
              static_cast<long long>(result.search->batch), result.search->probes.size());
}

void run_lm(const Options& options, Context& context) {
  if (options.memory_report || options.find_batch_size) {
    const app::MemoryLmResult result = app::memory_lm({.config = config_of(options, context),
                                                       .threads = context.common.threads,
                                                       .search_batch = options.find_batch_size});
    return context.finish(app::to_json(result), [&] { print_memory(result); });
  }
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
  lm->add_flag("--memory-report", options->memory_report,
               "Only print what a step takes, predicted and measured");
  lm->add_flag("--find-batch-size", options->find_batch_size,
               "That, and the largest trainer.micro_batch that fits in 0.9 of the free memory, or "
               "in trainer.max_memory_mb");
  lm->callback([options, &context] { run_lm(*options, context); });
}

}  // namespace hone::cli
