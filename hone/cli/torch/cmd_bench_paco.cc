// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_paco.h"
#include "hone/cli/bench_verb.h"

namespace hone::cli {

void add_bench_paco(CLI::App& bench, Context& context) {
  const auto options = std::make_shared<bench::BenchPacoOptions>();
  CLI::App* verb = add_bench_verb(bench, context, "paco",
                                  "Measure the losses of PaCo-2 and their dense formulations",
                                  [&context, options](bench::BenchRun& run, Measurer&) {
                                    options->threads = context.common.threads;
                                    bench::bench_paco(*options, run);
                                  });
  verb->add_option("--batch-size", options->batches, "Images per batch")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--parts", options->parts, "Parts per image in each view")
      ->capture_default_str();
  verb->add_option("--dim", options->dim, "Dimension of a part")->capture_default_str();
  verb->add_flag("--whole-step", options->whole_step,
                 "Also measure training steps of ResNet-18 at 224 pixels and ResNet-20 at 64, and "
                 "the share of a step that the losses take");
  verb->add_option("--against", options->against, "Compare with dense, operators, loops")
      ->delimiter(',')
      ->capture_default_str();
}

}  // namespace hone::cli
