// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_attention.h"
#include "hone/cli/bench_verb.h"

namespace hone::cli {

void add_bench_attention(CLI::App& bench, Context& context) {
  const auto options = std::make_shared<bench::BenchAttentionOptions>();
  CLI::App* verb = add_bench_verb(
      bench, context, "attention",
      "Measure attention by random features and exact attention, with errors and memory",
      [&context, options](bench::BenchRun& run, Measurer&) {
        options->threads = context.common.threads;
        bench::bench_attention(*options, run);
      });
  verb->add_option("--seq", options->seqs, "Tokens of the sequence")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--heads", options->heads, "Heads")->capture_default_str();
  verb->add_option("--dim", options->dim, "Numbers of a head")->capture_default_str();
  verb->add_option("--features", options->features, "Random features")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--kernel", options->kernels, "What the features estimate: softmax, relu")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--pass", options->passes, "forward, train (forward and backward)")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--norm", options->norm, "Root mean square of the norms of queries and of keys")
      ->capture_default_str();
  verb->add_option("--against", options->against,
                   "sdpa (exact attention of LibTorch), loop (one token after the other)")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_flag("--causal", options->causal, "Queries attend to keys up to their own");
  verb->add_flag("--layer", options->layer, "Whole layers, with the projections");
}

}  // namespace hone::cli
