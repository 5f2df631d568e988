// SPDX-License-Identifier: Apache-2.0
// The gate and its gradient by their references and their identities.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hone/core/thread_pool.h"
#include "hone/kernels/activation/swiglu.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kEpsilon;
using test::kInfinity;
using test::kNan;
using test::random_values;
using Values = std::vector<float>;

constexpr Index kDims[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 100};

// Rows of gate, then up.
Values join(const Values& gate, const Values& up, Index dim) {
  Values both;
  for (std::size_t at = 0; at < gate.size(); at += static_cast<std::size_t>(dim)) {
    both.insert(both.end(), gate.begin() + static_cast<Index>(at),
                gate.begin() + static_cast<Index>(at) + dim);
    both.insert(both.end(), up.begin() + static_cast<Index>(at),
                up.begin() + static_cast<Index>(at) + dim);
  }
  return both;
}

Values gated(const Values& gate, const Values& up, Index dim,
             Executor& executor = serial_executor()) {
  const Values both = join(gate, up, dim);
  Values out(gate.size(), -7.0f);
  swiglu({static_cast<Index>(gate.size()) / dim, dim, both.data(), out.data()}, executor);
  return out;
}

Values gate_gradient(const Values& gate, const Values& up, const Values& g, Index dim) {
  const Values both = join(gate, up, dim);
  Values out(both.size(), -7.0f);
  swiglu_grad({static_cast<Index>(gate.size()) / dim, dim, both.data(), g.data(), out.data()},
              serial_executor());
  return out;
}

double silu(double z) { return z / (1 + std::exp(-z)); }

TEST(SwiGlu, matches_the_reference_and_its_gradient_does) {
  for (const auto& [rows, dim] : test::kRowShapes) {
    const Values gate_up = random_values(rows * 2 * dim, 7, 12),
                 grad = random_values(rows * dim, 8);
    Values out(grad.size()), want(grad.size()), by_input(gate_up.size()), want_by(gate_up.size());
    swiglu({rows, dim, gate_up.data(), out.data()}, serial_executor());
    swiglu_ref({rows, dim, gate_up.data(), want.data()});
    test::expect_close(out, want, 8 * kEpsilon, "swiglu");
    swiglu_grad({rows, dim, gate_up.data(), grad.data(), by_input.data()}, serial_executor());
    swiglu_grad_ref({rows, dim, gate_up.data(), grad.data(), want_by.data()});
    test::expect_close(by_input, want_by, 16 * kEpsilon, "swiglu gradient");
    Values in_place = gate_up;
    swiglu_grad({rows, dim, in_place.data(), grad.data(), in_place.data()}, serial_executor());
    EXPECT_EQ(in_place, by_input) << "the gradient may overwrite its input";
  }
}

TEST(SwiGlu, stays_finite_for_gates_far_out) {
  const Values gate_up = {-200, 200, -1000, 1000, 1, 1, 1, 1};
  Values out(4);
  swiglu({1, 4, gate_up.data(), out.data()}, serial_executor());
  EXPECT_NEAR(out[0], 0, 1e-30);
  EXPECT_EQ(out[1], 200);
  EXPECT_NEAR(out[2], 0, 1e-30);
  EXPECT_EQ(out[3], 1000);
}

TEST(SwiGluForm, follows_the_formula_from_minus_a_thousand_to_a_thousand) {
  Values gate;
  for (int i = -4000; i <= 4000; ++i) gate.push_back(static_cast<float>(i) / 4);
  const auto dim = static_cast<Index>(gate.size());
  const Values out = gated(gate, Values(gate.size(), 1.0f), dim);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double wanted = silu(gate[i]);
    // A few ulp; beyond a gate of -88 the sigmoid stays at e^-88 = 6e-39.
    ASSERT_NEAR(out[i], wanted, 8 * kEpsilon * std::abs(wanted) + 1e-38 * std::abs(gate[i]))
        << gate[i];
  }
}

// z/(1+e^-z) - (-z)/(1+e^z) = z.
TEST(SwiGluForm, mirrored_gates_differ_by_the_gate) {
  for (const Index dim : kDims) {
    const Values gate = random_values(dim, 1, 10), one(gate.size(), 1.0f);
    Values mirrored = gate;
    for (float& value : mirrored) value = -value;
    const Values a = gated(gate, one, dim), b = gated(mirrored, one, dim);
    for (std::size_t i = 0; i < gate.size(); ++i)
      ASSERT_NEAR(a[i] - b[i], gate[i], 8 * kEpsilon * (std::abs(gate[i]) + 1));
  }
}

TEST(SwiGluForm, is_linear_in_up) {
  for (const Index dim : kDims) {
    const Values gate = random_values(2 * dim, 2, 4), up = random_values(2 * dim, 3);
    Values more = up;
    for (float& value : more) value *= -16;
    const Values once = gated(gate, up, dim), scaled = gated(gate, more, dim);
    for (std::size_t i = 0; i < gate.size(); ++i) ASSERT_EQ(scaled[i], -16 * once[i]);
  }
}

TEST(SwiGluForm, an_element_depends_on_its_own_gate_and_up_alone) {
  const Index dim = 37;
  const Values gate = random_values(dim, 4, 4), up = random_values(dim, 5);
  const Values before = gated(gate, up, dim);
  for (const float bad : {kNan, kInfinity}) {
    for (std::size_t at = 0; at < gate.size(); ++at) {
      Values changed = gate;
      changed[at] = bad;
      const Values after = gated(changed, up, dim);
      for (std::size_t i = 0; i < gate.size(); ++i) {
        if (i == at) {
          ASSERT_FALSE(std::isfinite(after[i])) << bad << " became " << after[i] << " at " << i;
        } else {
          ASSERT_EQ(after[i], before[i]);
        }
      }
    }
  }
}

TEST(SwiGluGradient, is_the_derivative_of_the_formula) {
  constexpr double kStep = 1e-5;
  for (const Index dim : kDims) {
    const Values gate = random_values(dim, 6, 12), up = random_values(dim, 7);
    const Values g = random_values(dim, 8);
    const Values got = gate_gradient(gate, up, g, dim);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double slope = (silu(gate[i] + kStep) - silu(gate[i] - kStep)) / (2 * kStep);
      ASSERT_NEAR(got[i], g[i] * up[i] * slope, 2e-6) << "gate " << gate[i];
      ASSERT_NEAR(got[i + gate.size()], g[i] * silu(gate[i]), 1e-5) << "gate " << gate[i];
    }
  }
}

TEST(SwiGluGradient, far_gates_pass_all_or_nothing) {
  const Values gate{-500, -90, 90, 500}, up{3, 3, 3, 3}, one(4, 1.0f);
  const Values got = gate_gradient(gate, up, one, 4);
  for (std::size_t i : {0u, 1u}) {
    EXPECT_NEAR(got[i], 0, 1e-30) << "by gate";
    EXPECT_NEAR(got[i + 4], 0, 1e-30) << "by up";
  }
  for (std::size_t i : {2u, 3u}) {
    EXPECT_EQ(got[i], 3) << "by gate";
    EXPECT_EQ(got[i + 4], gate[i]) << "by up";
  }
}

TEST(SwiGluGradient, nan_reaches_the_gradient_in_the_vector_and_in_the_tail) {
  const Index dim = 21;
  for (std::size_t at = 0; at < 21; ++at) {
    Values gate = random_values(dim, 9);
    gate[at] = kNan;
    const Values got = gate_gradient(gate, random_values(dim, 10), Values(21, 1.0f), dim);
    for (std::size_t i = 0; i < 21; ++i) {
      ASSERT_EQ(std::isnan(got[i]), i == at);
      ASSERT_EQ(std::isnan(got[i + 21]), i == at);
    }
  }
}

TEST(SwiGluHostile, no_rows_no_columns_and_the_end_of_the_page) {
  swiglu({0, 16, nullptr, nullptr}, serial_executor());
  swiglu({5, 0, nullptr, nullptr}, serial_executor());
  swiglu_grad({0, 16, nullptr, nullptr, nullptr}, serial_executor());
  for (const Index dim : {1, 6, 16, 19}) {
    const test::GuardedFloats both(random_values(4 * dim, 1)), out(Values(2 * dim, 0.0f));
    const test::GuardedFloats by_both(Values(4 * dim, 0.0f));
    swiglu({2, dim, both.data(), out.data()}, serial_executor());
    swiglu_grad({2, dim, both.data(), out.data(), by_both.data()}, serial_executor());
    EXPECT_NE(out.data()[2 * dim - 1], 0);
  }
}

TEST(SwiGluHostile, has_the_same_bits_on_any_number_of_threads) {
  const Index dim = 130, rows = 900;
  const Values gate = random_values(rows * dim, 11, 5), up = random_values(rows * dim, 12);
  const Values one = gated(gate, up, dim);
  ThreadPool pool(3);
  EXPECT_EQ(gated(gate, up, dim, pool), one);
}

}  // namespace
}  // namespace hone::kernels
