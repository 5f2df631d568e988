// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <utility>

#include "hone/cli/bench_verb.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/trace_options.h"
#include "hone/cli/validators.h"
#include "hone/cli/verbs.h"
#include "hone/core/error.h"
#include "hone/core/machine/machine_card.h"
#include "hone/measure/measure.h"

namespace hone::cli {

CLI::App* add_bench_verb(CLI::App& bench, Context& context, const std::string& name,
                         const std::string& help, BenchJob job) {
  CLI::App* verb = bench.add_subcommand(name, help);
  auto options = std::make_shared<bench::BenchOptions>();
  verb->add_flag("--quick", options->quick, "Take fewer samples (about a minute)");
  verb->add_option(
          "--repeat,--iterations", options->repeat,
          "Number of timed rounds (default: until the confidence interval of the median is narrow)")
      ->check(whole_number(1));
  add_trace_option(*verb, context);
  verb->callback([&context, options, job = std::move(job)] {
    const Interrupt interrupt;
    options->stop = Interrupt::token();
    const auto measurer = measure::make_measurer();
    bench::BenchRun run(*measurer, *options);
    try {
      job(run, *measurer);
    } catch (const Error&) {
      // Peers get the terminal's signal too: whatever they then do is the interrupt's doing.
      if (!interrupt.requested()) throw;
      if (!context.common.json && !run.rows().empty()) context.print(run.table());
      throw Error(ErrorCategory::Cancelled, "the bench was interrupted");
    }
    Json report = run.report();
    report["machine"] = machine_card(context.executor());
    context.finish(report, [&] { std::fputs(run.table().c_str(), stdout); });
  });
  return verb;
}

void add_bench(CLI::App& program, Context& context) {
  CLI::App* bench =
      program.add_subcommand("bench", "Benchmark hone and other libraries side by side");
  bench->require_subcommand(1);
  add_entries(*bench, context, bench_entries());
}

}  // namespace hone::cli
