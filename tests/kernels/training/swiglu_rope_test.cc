// SPDX-License-Identifier: Apache-2.0
// The gate and the rotation of a training step by their identities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "hone/core/thread_pool.h"
#include "hone/kernels/training/train_ops.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels::training {
namespace {

using test::kEpsilon;
using test::kInfinity;
using test::kNan;
using test::random_values;
using testing::HasSubstr;
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

// Heads [rows, heads, head_dim] inside rows that are `gap` floats longer.
struct Turn {
  Index rows = 8, positions = 4, heads = 2, head_dim = 8, gap = 0;
  Values cos, sin;

  explicit Turn(Index dim, Index between = 0) : head_dim(dim), gap(between) {
    for (Index position = 0; position < positions; ++position) {
      for (Index i = 0; i < dim / 2; ++i) {
        const double angle = static_cast<double>(position) / (1.0 + static_cast<double>(i));
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
  Index stride() const { return heads * head_dim + gap; }
  Values apply(const Values& in, bool inverse = false) const {
    Values out = in;
    run(in.data(), out.data(), inverse);
    return out;
  }
  void run(const float* in, float* out, bool inverse = false,
           Executor& executor = serial_executor()) const {
    rope({rows, positions, heads, head_dim, in, stride(), out, stride(), cos.data(), sin.data(),
          inverse},
         executor);
  }
};

TEST(TrainingRope, a_quarter_turn_by_hand) {
  const float in[] = {1, 2, 3, 4}, cos[] = {0, 1}, sin[] = {1, 0};
  float out[4];
  rope({1, 1, 1, 4, in, 4, out, 4, cos, sin, false}, serial_executor());
  EXPECT_THAT(out, testing::ElementsAre(-3, 2, 1, 4));
  rope({1, 1, 1, 4, in, 4, out, 4, cos, sin, true}, serial_executor());
  EXPECT_THAT(out, testing::ElementsAre(3, 2, -1, 4));
}

// ⟨R x, y⟩ = ⟨x, R⁻¹ y⟩: what makes the inverse the gradient.
TEST(TrainingRope, the_inverse_is_the_transpose) {
  for (const Index dim : {2, 6, 16, 34, 64}) {
    const Turn turn(dim);
    const Values x = random_values(turn.rows * turn.stride(), 1);
    const Values y = random_values(turn.rows * turn.stride(), 2);
    const auto dot = [](const Values& a, const Values& b) {
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    EXPECT_NEAR(dot(turn.apply(x), y), dot(x, turn.apply(y, true)), 1e-4) << dim;
  }
}

TEST(TrainingRope, rows_take_the_angle_of_their_position_modulo_the_length) {
  const Turn turn(12);  // 8 rows, 4 positions: two sequences
  Values x = random_values(4 * turn.stride(), 3);
  x.insert(x.end(), x.begin(), x.begin() + 4 * turn.stride());
  const Values out = turn.apply(x);
  EXPECT_TRUE(
      std::equal(out.begin(), out.begin() + 4 * turn.stride(), out.begin() + 4 * turn.stride()));
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + turn.stride(), x.begin()))
      << "position 0 turns by nothing";
}

TEST(TrainingRope, works_in_place_and_leaves_what_lies_between_rows) {
  for (const Index dim : {2, 10, 32, 36}) {
    const Turn turn(dim, 5);
    const Values x = random_values(turn.rows * turn.stride(), 4);
    const Values out = turn.apply(x);
    Values in_place = x;
    turn.run(in_place.data(), in_place.data());
    EXPECT_EQ(in_place, out);
    for (Index row = 0; row < turn.rows; ++row) {
      for (Index i = turn.heads * dim; i < turn.stride(); ++i) {
        const auto at = static_cast<std::size_t>(row * turn.stride() + i);
        ASSERT_EQ(out[at], x[at]) << row << " " << i;
      }
    }
  }
}

TEST(TrainingRope, has_the_same_bits_on_any_number_of_threads) {
  Turn turn(64);
  turn.rows = 2000;
  const Values x = random_values(turn.rows * turn.stride(), 5);
  const Values one = turn.apply(x);
  ThreadPool pool(3);
  Values many(x.size());
  turn.run(x.data(), many.data(), false, pool);
  EXPECT_EQ(many, one);
}

TEST(TrainingRope, names_what_it_wanted) {
  const auto sentence = [](Index positions, Index head_dim) {
    return test::error_of([&] {
      rope({1, positions, 1, head_dim, nullptr, 0, nullptr, 0, nullptr, nullptr, false},
           serial_executor());
    });
  };
  EXPECT_THAT(sentence(1, 5), HasSubstr("[rope] expected an even head_dim, got 5"));
  EXPECT_THAT(sentence(0, 4), HasSubstr("[rope] expected positions > 0, got 0"));
  EXPECT_THAT(sentence(-1, 4), HasSubstr("got -1"));
  rope({0, 1, 1, 4, nullptr, 4, nullptr, 4, nullptr, nullptr, false}, serial_executor());
}

}  // namespace
}  // namespace hone::kernels::training
