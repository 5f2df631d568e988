// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/app/bench/bench_gemm.h"

namespace hone::app {

// LibTorch's rows of `hone bench gemm`.
GemmOpponents torch_gemm_opponents();

}  // namespace hone::app
