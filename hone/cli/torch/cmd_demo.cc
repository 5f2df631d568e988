// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "hone/app/torch/demo.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/trace_options.h"
#include "hone/cli/validators.h"
#include "hone/measure/measure.h"

namespace hone::cli {

void add_demo(CLI::App& program, Context& context) {
  auto options = std::make_shared<app::DemoOptions>();
  CLI::App* verb = program.add_subcommand(
      "demo", "Train, compress and measure a small model, and write a report");
  verb->add_option("--out", options->out, "Folder for the models and the report")
      ->check(not_empty())
      ->capture_default_str();
  verb->add_option("--data", options->data, "Text to train on (default: embedded stories)")
      ->check(not_empty());
  verb->add_flag("--quick", options->quick, "Train for half a minute and take fewer samples");
  verb->add_flag("--fresh", options->fresh, "Train again even if the same run exists");
  add_trace_option(*verb, context);
  verb->callback([options, &context] {
    const Interrupt interrupt;
    options->threads = context.common.threads;
    options->seed = static_cast<Index>(context.common.seed.value_or(0));
    options->stop = Interrupt::token();
    const auto measurer = measure::make_measurer();
    const app::DemoResult result = app::run_demo(*options, context.executor(), *measurer);
    context.finish(app::to_json(result),
                   [&] { std::fputs(app::to_table(result).c_str(), stdout); });
  });
}

}  // namespace hone::cli
