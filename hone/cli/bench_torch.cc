// SPDX-License-Identifier: Apache-2.0
// The benches of `hone-torch`. bench_hone.cc has those of `hone`.
#include "hone/bench/torch/gemm_contestants.h"
#include "hone/cli/bench_verb.h"

namespace hone::cli {

bench::GemmContestants gemm_contestants() { return bench::torch_gemm_contestants(); }

void add_benches(CLI::App& bench, Context& context) {
  add_bench_gemm(bench, context);
  add_bench_llm(bench, context);
  add_bench_optim(bench, context);
  add_bench_amp(bench, context);
  add_bench_paco(bench, context);
  add_bench_layers(bench, context);
  add_bench_linalg(bench, context);
  add_bench_attention(bench, context);
}

}  // namespace hone::cli
