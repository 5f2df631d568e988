// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_attention.h"
#include "hone/cli/bench_verb.h"

namespace hone::cli {

void add_bench_attention(CLI::App& bench, Context& context) {
  const auto options = std::make_shared<bench::BenchAttentionOptions>();
  CLI::App* verb = add_bench_verb(
      bench, context, "attention",
      "Measure time, errors and memory of random-feature attention and exact attention",
      [&context, options](bench::BenchRun& run, Measurer&) {
        options->threads = context.common.threads;
        bench::bench_attention(*options, run);
      });
  verb->add_option("--seq", options->seqs, "Sequence lengths in tokens")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--heads", options->heads, "Number of heads")->capture_default_str();
  verb->add_option("--dim", options->dim, "Dimension of a head")->capture_default_str();
  verb->add_option("--features", options->features, "Numbers of random features")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--kernel", options->kernels,
                   "Kernels that the features approximate: softmax, relu")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--pass", options->passes,
                   "Passes to measure: forward, train (forward and backward)")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--norm", options->norm,
                   "Root mean square of the norms of queries, and of those of keys")
      ->capture_default_str();
  verb->add_option("--against", options->against,
                   "Compare with sdpa (LibTorch's exact attention), loop (one token at a time)")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_flag("--causal", options->causal,
                 "Causal attention: queries attend only to keys up to their own position");
  verb->add_flag("--layer", options->layer, "Measure whole layers, including the projections");
}

}  // namespace hone::cli
