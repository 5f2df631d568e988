// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "hone/app/torch/optimize.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/trace_options.h"
#include "hone/cli/validators.h"
#include "hone/core/check.h"
#include "hone/measure/measure.h"

namespace hone::cli {
namespace {

struct OptimizeCommand {
  app::OptimizeOptions job;
  std::string model, out, shape;
};

// "1x3x224x224".
std::vector<Index> parse_shape(const std::string& text) {
  std::vector<Index> out;
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    Index size = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, size);
    if (error != std::errc() || rest != text.data() + end || out.size() == 8) {
      fail_argument("--shape", "up to 8 sizes such as 1x3x224x224", text);
    }
    out.push_back(size);
    begin = end + 1;
  }
  return out;
}

void run(OptimizeCommand& command, Context& context) {
  const Interrupt interrupt;
  app::OptimizeOptions& job = command.job;
  job.model = command.model;
  job.out = command.out;
  job.shape = parse_shape(command.shape);
  job.seed = context.common.seed.value_or(0);
  job.threads = context.common.threads;
  job.stop = Interrupt::token();
  const auto measurer = measure::make_measurer();
  const app::OptimizeResult result = app::optimize_model(job, *measurer);
  context.finish(result.document, [&] { std::fputs(app::to_table(result).c_str(), stdout); });
}

}  // namespace

void add_optimize(CLI::App& program, Context& context) {
  auto command = std::make_shared<OptimizeCommand>();
  CLI::App* verb = program.add_subcommand(
      "optimize", "Prepare a classifier or a TorchScript file for inference on this machine");
  verb->add_option("MODEL", command->model,
                   "Folder of a classifier that `hone train vision` wrote, or a TorchScript file; "
                   "it is not modified")
      ->required();
  verb->add_option(
          "-o,--out", command->out,
          "Write the result: a classifier's folder if weights were stored in fewer bits, or "
          "the fastest form of a TorchScript file if one is faster")
      ->check(not_empty());
  verb->add_option("--level", command->job.level,
                   "For a classifier: exact folds and fuses; standard also stores weights in 8 "
                   "bits; aggressive in 4 bits")
      ->check(CLI::IsMember({"exact", "standard", "aggressive"}))
      ->capture_default_str();
  verb->add_option("--data", command->job.data,
                   "For a classifier: images as for `hone train vision`, whose training part "
                   "calibrates; without, random inputs are measured");
  verb->add_option("--batch", command->job.batch, "For a classifier: images that run together")
      ->check(whole_number(1, 4096))
      ->capture_default_str();
  verb->add_option("--max-error", command->job.max_error,
                   "Relative error of the outputs that fewer bits may cause (default: 0.02, or 0.1 "
                   "for aggressive)")
      ->check(CLI::Range(0.0, 0.99));
  verb->add_option("--shape", command->shape,
                   "For a TorchScript file: the shape of its input, such as 1x3x224x224");
  add_trace_option(*verb, context);
  verb->callback([command, &context] { run(*command, context); });
}

}  // namespace hone::cli
