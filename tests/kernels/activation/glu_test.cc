// SPDX-License-Identifier: Apache-2.0
// Gates and their gradients by their references and their identities.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/activation/glu.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kEpsilon;
using test::kInfinity;
using test::kNan;
using test::random_values;
using Values = std::vector<float>;

constexpr Index kDims[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 100};
constexpr Gate kGates[] = {Gate::Silu, Gate::GeluTanh};

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

Values gated(Gate act, const Values& gate, const Values& up, Index dim,
             Executor& executor = serial_executor()) {
  const Values both = join(gate, up, dim);
  Values out(gate.size(), -7.0f);
  glu({static_cast<Index>(gate.size()) / dim, dim, both.data(), out.data(), act}, executor);
  return out;
}

Values gate_gradient(Gate act, const Values& gate, const Values& up, const Values& g, Index dim) {
  const Values both = join(gate, up, dim);
  Values out(both.size(), -7.0f);
  glu_grad({static_cast<Index>(gate.size()) / dim, dim, both.data(), g.data(), out.data(), act},
           serial_executor());
  return out;
}

double silu(double z) { return z / (1 + std::exp(-z)); }

double gelu_tanh(double z) {
  return z / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
}

double activate(Gate act, double z) { return act == Gate::Silu ? silu(z) : gelu_tanh(z); }

std::string name_of(Gate act) { return act == Gate::Silu ? "silu" : "gelu"; }

TEST(Glu, matches_the_reference_and_its_gradient_does) {
  for (const Gate act : kGates) {
    for (const auto& [rows, dim] : test::kRowShapes) {
      const Values gate_up = random_values(rows * 2 * dim, 7, 12),
                   grad = random_values(rows * dim, 8);
      Values out(grad.size()), want(grad.size()), by_input(gate_up.size()), want_by(gate_up.size());
      glu({rows, dim, gate_up.data(), out.data(), act}, serial_executor());
      glu_ref({rows, dim, gate_up.data(), want.data(), act});
      test::expect_close(out, want, 8 * kEpsilon, name_of(act));
      glu_grad({rows, dim, gate_up.data(), grad.data(), by_input.data(), act}, serial_executor());
      glu_grad_ref({rows, dim, gate_up.data(), grad.data(), want_by.data(), act});
      test::expect_close(by_input, want_by, 16 * kEpsilon, name_of(act) + " gradient");
      Values in_place = gate_up;
      glu_grad({rows, dim, in_place.data(), grad.data(), in_place.data(), act}, serial_executor());
      EXPECT_EQ(in_place, by_input) << "the gradient may overwrite its input";
    }
  }
}

TEST(Glu, stays_finite_for_gates_far_out) {
  for (const Gate act : kGates) {
    const Values out =
        gated(act, {-200, 200, -1000, 1000, -1e20f, 1e20f}, Values(6, 1.0f), /*dim=*/6);
    for (const std::size_t i : {0u, 2u, 4u}) EXPECT_NEAR(out[i], 0, 1e-30) << name_of(act);
    EXPECT_EQ(out[1], 200);
    EXPECT_EQ(out[3], 1000);
    EXPECT_EQ(out[5], 1e20f);
  }
}

TEST(GluForm, follows_the_formula_from_minus_a_thousand_to_a_thousand) {
  Values gate;
  for (int i = -4000; i <= 4000; ++i) gate.push_back(static_cast<float>(i) / 4);
  const auto dim = static_cast<Index>(gate.size());
  for (const Gate act : kGates) {
    const Values out = gated(act, gate, Values(gate.size(), 1.0f), dim);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double wanted = activate(act, gate[i]);
      // A few ulp. Below 0, an ulp of gelu's exponent t counts |t| times in exp(t), and the wanted
      // value cancels; silu's sigmoid stays at e^-88 = 6e-39 beyond a gate of -88.
      const double z = gate[i], t = act == Gate::Silu || z > 0 ? 0 : 1.6 * (z + 0.045 * z * z * z);
      const double ulps = 8 + 3 * std::abs(t), floor = act == Gate::Silu ? 1e-38 : 1e-15;
      ASSERT_NEAR(out[i], wanted, ulps * kEpsilon * std::abs(wanted) + floor * std::abs(z))
          << name_of(act) << ' ' << gate[i];
    }
  }
}

// act(z) - act(-z) = z, because sigmoid(t) + sigmoid(-t) = 1 and t is odd.
TEST(GluForm, mirrored_gates_differ_by_the_gate) {
  for (const Gate act : kGates) {
    for (const Index dim : kDims) {
      const Values gate = random_values(dim, 1, 10), one(gate.size(), 1.0f);
      Values mirrored = gate;
      for (float& value : mirrored) value = -value;
      const Values a = gated(act, gate, one, dim), b = gated(act, mirrored, one, dim);
      for (std::size_t i = 0; i < gate.size(); ++i)
        ASSERT_NEAR(a[i] - b[i], gate[i], 8 * kEpsilon * (std::abs(gate[i]) + 1));
    }
  }
}

// The tanh form stands for z Phi(z) with the normal distribution Phi (Hendrycks and Gimpel): less
// than 5e-4 apart everywhere, but apart.
TEST(GluForm, gelu_is_near_the_one_of_the_error_function) {
  Values gate;
  for (int i = -800; i <= 800; ++i) gate.push_back(static_cast<float>(i) / 100);
  const Values out = gated(Gate::GeluTanh, gate, Values(gate.size(), 1.0f), std::ssize(gate));
  double worst = 0;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double exact = gate[i] * std::erfc(-gate[i] / std::numbers::sqrt2) / 2;
    worst = std::max(worst, std::abs(out[i] - exact));
  }
  EXPECT_LT(worst, 5e-4);
  EXPECT_GT(worst, 4e-4);
}

TEST(GluForm, is_linear_in_up) {
  for (const Gate act : kGates) {
    for (const Index dim : kDims) {
      const Values gate = random_values(2 * dim, 2, 4), up = random_values(2 * dim, 3);
      Values more = up;
      for (float& value : more) value *= -16;
      const Values once = gated(act, gate, up, dim), scaled = gated(act, gate, more, dim);
      for (std::size_t i = 0; i < gate.size(); ++i) ASSERT_EQ(scaled[i], -16 * once[i]);
    }
  }
}

TEST(GluForm, an_element_depends_on_its_own_gate_and_up_alone) {
  const Index dim = 37;
  const Values gate = random_values(dim, 4, 4), up = random_values(dim, 5);
  for (const Gate act : kGates) {
    const Values before = gated(act, gate, up, dim);
    for (const float bad : {kNan, kInfinity}) {
      for (std::size_t at = 0; at < gate.size(); ++at) {
        Values changed = gate;
        changed[at] = bad;
        const Values after = gated(act, changed, up, dim);
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
}

TEST(GluGradient, is_the_derivative_of_the_formula) {
  constexpr double kStep = 1e-5;
  for (const Gate act : kGates) {
    for (const Index dim : kDims) {
      const Values gate = random_values(dim, 6, 12), up = random_values(dim, 7);
      const Values g = random_values(dim, 8);
      const Values got = gate_gradient(act, gate, up, g, dim);
      for (std::size_t i = 0; i < gate.size(); ++i) {
        const double slope =
            (activate(act, gate[i] + kStep) - activate(act, gate[i] - kStep)) / (2 * kStep);
        ASSERT_NEAR(got[i], g[i] * up[i] * slope, 2e-6) << name_of(act) << ' ' << gate[i];
        ASSERT_NEAR(got[i + gate.size()], g[i] * activate(act, gate[i]), 1e-5)
            << name_of(act) << ' ' << gate[i];
      }
    }
  }
}

// Along a direction, the result changes by the product of gradient and direction, summed in double.
TEST(GluGradient, predicts_a_small_step_of_gate_and_up_together) {
  const Index rows = 3, dim = 37;
  const Values both = random_values(rows * 2 * dim, 21, 3), way = random_values(rows * 2 * dim, 22);
  const Values g = random_values(rows * dim, 23);
  constexpr float kStep = 0x1p-7f;
  for (const Gate act : kGates) {
    Values by_both(both.size()), before(g.size()), after(g.size()), back = both, forth = both;
    for (std::size_t i = 0; i < both.size(); ++i) {
      back[i] -= kStep * way[i];
      forth[i] += kStep * way[i];
    }
    glu_grad({rows, dim, both.data(), g.data(), by_both.data(), act}, serial_executor());
    glu({rows, dim, back.data(), before.data(), act}, serial_executor());
    glu({rows, dim, forth.data(), after.data(), act}, serial_executor());
    double change = 0, predicted = 0;
    for (std::size_t i = 0; i < g.size(); ++i)
      change += g[i] * (static_cast<double>(after[i]) - before[i]) / (2 * kStep);
    for (std::size_t i = 0; i < both.size(); ++i)
      predicted += static_cast<double>(by_both[i]) * way[i];
    EXPECT_NEAR(change, predicted, 1e-3) << name_of(act);
  }
}

TEST(GluGradient, far_gates_pass_all_or_nothing) {
  const Values gate{-1e20f, -500, -90, 90, 500, 1e20f}, up(6, 3.0f), one(6, 1.0f);
  for (const Gate act : kGates) {
    const Values got = gate_gradient(act, gate, up, one, 6);
    for (std::size_t i : {0u, 1u, 2u}) {
      EXPECT_NEAR(got[i], 0, 1e-30) << "by gate";
      EXPECT_NEAR(got[i + 6], 0, 1e-30) << "by up";
    }
    for (std::size_t i : {3u, 4u, 5u}) {
      EXPECT_EQ(got[i], 3) << "by gate";
      EXPECT_EQ(got[i + 6], gate[i]) << "by up";
    }
  }
}

TEST(GluGradient, nan_reaches_the_gradient_in_the_vector_and_in_the_tail) {
  const Index dim = 21;
  for (const Gate act : kGates) {
    for (std::size_t at = 0; at < 21; ++at) {
      Values gate = random_values(dim, 9);
      gate[at] = kNan;
      const Values got = gate_gradient(act, gate, random_values(dim, 10), Values(21, 1.0f), dim);
      for (std::size_t i = 0; i < 21; ++i) {
        ASSERT_EQ(std::isnan(got[i]), i == at) << name_of(act);
        ASSERT_EQ(std::isnan(got[i + 21]), i == at) << name_of(act);
      }
    }
  }
}

TEST(GluHostile, refuses_negative_sizes) {
  for (const auto& [rows, cols] : {std::pair<Index, Index>{-1, 4}, {4, -1}}) {
    EXPECT_THROW(glu({rows, cols, nullptr, nullptr}), Error);
    EXPECT_THROW(glu_grad({rows, cols, nullptr, nullptr, nullptr}), Error);
  }
}

TEST(GluHostile, no_rows_no_columns_and_the_end_of_the_page) {
  glu({0, 16, nullptr, nullptr}, serial_executor());
  glu({5, 0, nullptr, nullptr}, serial_executor());
  glu_grad({0, 16, nullptr, nullptr, nullptr}, serial_executor());
  for (const Gate act : kGates) {
    for (const Index dim : {1, 6, 16, 19}) {
      const test::GuardedFloats both(random_values(4 * dim, 1)), out(Values(2 * dim, 0.0f));
      const test::GuardedFloats by_both(Values(4 * dim, 0.0f));
      glu({2, dim, both.data(), out.data(), act}, serial_executor());
      glu_grad({2, dim, both.data(), out.data(), by_both.data(), act}, serial_executor());
      EXPECT_NE(out.data()[2 * dim - 1], 0);
    }
  }
}

TEST(GluHostile, has_the_same_bits_on_any_number_of_threads) {
  const Index dim = 130, rows = 900;
  const Values gate = random_values(rows * dim, 11, 5), up = random_values(rows * dim, 12);
  ThreadPool pool(3);
  for (const Gate act : kGates)
    EXPECT_EQ(gated(act, gate, up, dim, pool), gated(act, gate, up, dim));
}

}  // namespace
}  // namespace hone::kernels
