// SPDX-License-Identifier: Apache-2.0
// The benches of `hone`. bench_torch.cc has those of `hone-torch`.
#include "hone/cli/bench_verb.h"

namespace hone::cli {

bench::GemmContestants gemm_contestants() { return bench::absent_gemm_contestants(); }

void add_benches(CLI::App& bench, Context& context) {
  add_bench_gemm(bench, context);
  add_bench_llm(bench, context);
}

}  // namespace hone::cli
