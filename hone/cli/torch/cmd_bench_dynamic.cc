// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_dynamic.h"
#include "hone/cli/bench_verb.h"

namespace hone::cli {

void add_bench_dynamic(CLI::App& bench, Context& context) {
  const auto options = std::make_shared<bench::BenchDynamicOptions>();
  CLI::App* verb =
      add_bench_verb(bench, context, "dynamic",
                     "Measure dynamic int8 layers, those of LibTorch, and f32 in one process",
                     [&context, options](bench::BenchRun& run, Measurer&) {
                       options->threads = context.common.threads;
                       bench::bench_dynamic(*options, run);
                     });
  verb->add_option("--op", options->ops, "Layers: linear, lstm")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--rows", options->rows, "Inputs, or sequences of an LSTM")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--width", options->width, "Inputs and outputs of a layer")
      ->capture_default_str();
  verb->add_option("--steps", options->steps, "Steps of a sequence")->capture_default_str();
}

}  // namespace hone::cli
