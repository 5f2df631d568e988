// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/gemm_contestants.h"

#include <ATen/Parallel.h>
#include <ATen/ops/linear.h>
#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <memory>
#include <vector>

#include "hone/core/check.h"

namespace hone::bench {
namespace {

at::Tensor copy_matrix(std::span<const float> values, Index rows, Index cols) {
  // The blob is only read, by clone().
  return at::from_blob(const_cast<float*>(values.data()), {rows, cols}, at::kFloat).clone();
}

struct State {
  at::Tensor x;
  std::vector<at::Tensor> weights;
  std::size_t next = 0;
};

// at::linear in f32 without autograd; every call allocates its output, as LibTorch's users do. Sets
// the process's number of threads.
std::function<void()> make_torch_linear(const GemmProblem& problem) {
  HONE_CHECK(static_cast<Index>(problem.x.size()) == problem.rows * problem.depth &&
                 static_cast<Index>(problem.weight.size()) == problem.outputs * problem.depth &&
                 problem.copies > 0,
             "torch_linear", "spans of the given shape", problem.x.size());
  at::set_num_threads(problem.threads);
  const c10::InferenceMode guard;
  const auto state = std::make_shared<State>();
  state->x = copy_matrix(problem.x, problem.rows, problem.depth);
  for (Index i = 0; i < problem.copies; ++i) {
    state->weights.push_back(copy_matrix(problem.weight, problem.outputs, problem.depth));
  }
  return [state] {
    const c10::InferenceMode inference;
    at::linear(state->x, state->weights[state->next++ % state->weights.size()]);
  };
}

}  // namespace

GemmContestants torch_gemm_contestants() {
  return {{.name = "torch_linear", .make = make_torch_linear}};
}

}  // namespace hone::bench
