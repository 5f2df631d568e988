// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/bench/bench_gemm.h"

namespace hone::bench {

// LibTorch's contestants for `hone bench gemm`.
GemmContestants torch_gemm_contestants();

}  // namespace hone::bench
