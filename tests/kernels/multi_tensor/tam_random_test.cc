// SPDX-License-Identifier: Apache-2.0
// TAM on random gradients: the mean cosine, and the rate that moves as far as SGD with momentum.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/tam_scope_step.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using hone::test::TensorSet;
using test::random_values;

constexpr Index kSize = 100'000, kSteps = 500, kSettled = 50;

double norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  return std::sqrt(squares);
}

// S* of gradients sqrt(ρ) a + sqrt(1 - ρ) b_t with β = 0.9.
double derived_cosine(double share) {
  return share == 0 ? 0 : share / std::sqrt(share + (1 - share) * (1 - 0.9) / (1 + 0.9));
}

// TAM at η / d* and SGD with momentum at η on the same gradients, both from 0.
TEST(TamRandom, mean_cosine_and_displacement_are_the_derived_ones) {
  ThreadPool pool(2);
  const auto signal = random_values(kSize, 1);
  for (const double share : {0.0, 0.1, 0.3, 0.9}) {
    TensorSet tam({kSize}), sgd({kSize});
    for (TensorSet* set : {&tam, &sgd}) std::ranges::fill(set->param[0], 0.0f);
    const double wanted = derived_cosine(share), lr = 1e-3;
    const TAMGroup tam_group{.lr = lr / ((1 + wanted) / 2)};
    const SGDGroup sgd_group{.lr = lr, .momentum = 0.9};
    const auto of_signal = static_cast<float>(std::sqrt(share)),
               of_noise = static_cast<float>(std::sqrt(1 - share));
    std::vector<float> grad(kSize);
    double s = 0, sum = 0;
    for (Index t = 0; t < kSteps; ++t) {
      const auto noise = random_values(kSize, 100 + static_cast<std::uint64_t>(t));
      for (std::size_t i = 0; i < kSize; ++i) grad[i] = of_signal * signal[i] + of_noise * noise[i];
      for (TensorSet* set : {&tam, &sgd}) set->view_of(Slot::Grad, 0).data = grad.data();
      const double last = s;
      tam_step(tam.plan(), {&tam_group, 1}, TAMScope::Tensor, {&s, 1}, {}, pool);
      sgd_step(sgd.plan(), {&sgd_group, 1}, {}, pool);
      if (t >= kSettled) sum += (s - 0.9 * last) / 0.1;
    }
    EXPECT_NEAR(sum / (kSteps - kSettled), wanted, 0.02) << share;
    EXPECT_NEAR(norm(tam.param[0]) / norm(sgd.param[0]), 1, 0.05) << share;
  }
}

}  // namespace
}  // namespace hone::kernels
