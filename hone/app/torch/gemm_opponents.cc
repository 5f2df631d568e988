// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/gemm_opponents.h"

#include "hone/train/opponents/gemm_opponents.h"

namespace hone::app {

GemmOpponents torch_gemm_opponents() {
  return {{.name = "torch_linear", .make = [](const GemmProblem& problem) {
             return opponents::make_torch_linear({.x = problem.x,
                                                  .weight = problem.weight,
                                                  .rows = problem.rows,
                                                  .outputs = problem.outputs,
                                                  .depth = problem.depth,
                                                  .copies = problem.copies,
                                                  .threads = problem.threads});
           }}};
}

}  // namespace hone::app
