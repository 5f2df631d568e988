// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/gemm_contestants.h"

#include "hone/cli/bench_verb.h"

namespace hone::cli {

bench::GemmContestants torch_gemm_contestants() { return bench::torch_gemm_contestants(); }

}  // namespace hone::cli
