// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_optim.h"
#include "hone/cli/bench_verb.h"
#include "hone/core/check.h"

namespace hone::cli {
namespace {

using OptimCommand = std::shared_ptr<bench::BenchOptimOptions>;

CLI::App* add_verb(CLI::App& bench, Context& context, const char* name, const char* help,
                   const OptimCommand& options) {
  CLI::App* verb = add_bench_verb(bench, context, name, help,
                                  [&context, options](bench::BenchRun& run, Measurer&) {
                                    options->threads = context.common.threads;
                                    bench::bench_optim(*options, run);
                                  });
  verb->add_option("--sizes", options->sizes,
                   "Tensors x elements, or guide for the five sizes in the TAM guide")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_flag("--fresh-gradients", options->fresh_gradients,
                 "Replace the gradients with new tensors before every step, as zero_grad() does in "
                 "a training loop");
  verb->add_option("--device", options->device, "Device: cpu, cuda or cuda:N")
      ->capture_default_str();
  return verb;
}

}  // namespace

void add_bench_optim(CLI::App& bench, Context& context) {
  const OptimCommand options = std::make_shared<bench::BenchOptimOptions>();
  CLI::App* verb =
      add_verb(bench, context, "optim", "Measure optimizer steps of hone and LibTorch", options);
  verb->add_option("--op", options->rules,
                   concat("Optimizers: ", bench::optim_rule_names(),
                          "; the suffix _bf16 or _8bit selects the type of the optimizer state"))
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--impl", options->ours,
                   "hone's implementations: hone, hone_foreach, hone_for_loop")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--against", options->against,
                   "Compare with torch_optim, aten_fused, aten_chain, elementwise, own; for AdamW "
                   "also, in their own processes, torch_compile, bitsandbytes_32bit, "
                   "bitsandbytes_8bit, torchao_8bit, torchao_4bit, deepspeed")
      ->delimiter(',')
      ->capture_default_str();
}

void add_bench_amp(CLI::App& bench, Context& context) {
  const OptimCommand options = std::make_shared<bench::BenchOptimOptions>();
  options->rules = {"amp_adamw"};
  options->against = {"torch_optim", "own"};
  add_verb(bench, context, "amp",
           "Measure the mixed-precision step (unscale, finite check, clip, AdamW), the same chain "
           "in LibTorch, and AdamW alone",
           options);
}

}  // namespace hone::cli
