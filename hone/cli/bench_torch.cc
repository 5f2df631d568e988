// SPDX-License-Identifier: Apache-2.0
// The benches of `hone-torch`; bench_hone.cc has those of `hone`.
#include "hone/app/torch/gemm_opponents.h"
#include "hone/cli/bench_verb.h"

namespace hone::cli {

app::GemmOpponents gemm_opponents() { return app::torch_gemm_opponents(); }

void add_benches(CLI::App& bench, Context& context) {
  add_bench_gemm(bench, context);
  add_bench_llm(bench, context);
  add_bench_optim(bench, context);
  add_bench_amp(bench, context);
}

}  // namespace hone::cli
