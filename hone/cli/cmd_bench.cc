// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <utility>

#include "hone/app/measurer.h"
#include "hone/cli/bench_verb.h"
#include "hone/cli/validators.h"
#include "hone/core/machine_card.h"

namespace hone::cli {

CLI::App* add_bench_verb(CLI::App& bench, Context& context, const std::string& name,
                         const std::string& help, BenchJob job) {
  CLI::App* verb = bench.add_subcommand(name, help);
  auto options = std::make_shared<bench::BenchOptions>();
  verb->add_flag("--quick", options->quick, "Fewer samples: about a minute")->envname("HONE_QUICK");
  verb->add_option("--repeat", options->repeat,
                   "Timed rounds (default: until the median's interval is narrow)")
      ->check(whole_number(1))
      ->envname("HONE_REPEAT");
  verb->callback([&context, options, job = std::move(job)] {
    const auto measurer = app::make_measurer();
    bench::BenchRun run(*measurer, *options);
    job(run, *measurer);
    Json report = run.report();
    report["machine"] = machine_card(context.executor());
    context.finish(report, [&] { std::fputs(run.table().c_str(), stdout); });
  });
  return verb;
}

void add_bench(CLI::App& program, Context& context) {
  CLI::App* bench = program.add_subcommand("bench", "Side-by-side measurements in one run");
  bench->require_subcommand(1);
  add_benches(*bench, context);
}

}  // namespace hone::cli
