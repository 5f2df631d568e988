// SPDX-License-Identifier: Apache-2.0
// What holds for any features.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/kernels/attention/linear_attention_support.h"

namespace hone::kernels {
namespace {

using test::expect_close;
using test::LinearCase;
using test::LinearProblem;

constexpr double kTolerance = 3e-5;

std::vector<LinearCase> cases() {
  std::vector<LinearCase> all;
  for (const FeatureKind kind : {FeatureKind::Softmax, FeatureKind::Relu}) {
    for (const bool causal : {false, true}) {
      all.push_back({.batch = 2,
                     .heads = 2,
                     .queries = 140,
                     .keys = 140,
                     .qk_dim = 9,
                     .v_dim = 6,
                     .features = 21,
                     .kind = kind,
                     .causal = causal,
                     .eps = 1e-3f});
    }
  }
  return all;
}

TEST(LinearAttentionProperty, weights_of_a_row_add_up_to_one) {
  for (const LinearCase& c : cases()) {
    LinearProblem problem(c);
    std::fill(problem.v.begin(), problem.v.end(), 2.5f);
    linear_attention(problem.args());
    expect_close(problem.out, std::vector<float>(problem.out.size(), 2.5f), 2e-6, c.text());
    // Equal values have no gradient through the weights.
    linear_attention_grad(problem.grad_args());
    for (const auto* grad : {&problem.grad_q, &problem.grad_k}) {
      for (const float value : *grad) EXPECT_NEAR(value, 0, 1e-3) << c.text();
    }
  }
}

TEST(LinearAttentionProperty, outputs_are_linear_in_values_and_scale_with_them_exactly) {
  for (const LinearCase& c : cases()) {
    LinearProblem problem(c);
    linear_attention(problem.args());
    auto expected = problem.out;
    for (float& value : expected) value *= 4;
    for (float& value : problem.v) value *= 4;
    linear_attention(problem.args());
    EXPECT_EQ(problem.out, expected) << c.text();
  }
}

TEST(LinearAttentionProperty, the_sum_of_gradients_by_values_is_that_of_outputs) {
  for (const LinearCase& c : cases()) {
    LinearProblem problem(c);
    linear_attention(problem.args());
    linear_attention_grad(problem.grad_args());
    const double given = std::accumulate(problem.grad_out.begin(), problem.grad_out.end(), 0.0);
    const double got = std::accumulate(problem.grad_v.begin(), problem.grad_v.end(), 0.0);
    EXPECT_NEAR(got, given, 1e-3) << c.text();
  }
}

TEST(LinearAttentionProperty, sequences_and_heads_do_not_see_each_other) {
  for (const LinearCase& c : cases()) {
    LinearProblem problem(c);
    linear_attention(problem.args());
    const auto before = problem.out;
    // The second head of the first sequence.
    for (Index t = 0; t < c.keys; ++t) {
      std::fill_n(problem.k.begin() + (t * c.heads + 1) * c.qk_dim, c.qk_dim, 3.0f);
      std::fill_n(problem.v.begin() + (t * c.heads + 1) * c.v_dim, c.v_dim, 3.0f);
    }
    linear_attention(problem.args());
    for (std::size_t i = 0; i < before.size(); ++i) {
      const Index row = static_cast<Index>(i) / c.v_dim;
      const bool is_changed = row / c.heads < c.queries && row % c.heads == 1;
      EXPECT_EQ(problem.out[i] != before[i], is_changed) << i;
    }
  }
}

TEST(LinearAttentionProperty, the_order_of_keys_matters_only_to_causal_attention) {
  LinearProblem problem({.queries = 130, .keys = 130, .causal = false, .size = 2});
  linear_attention(problem.args());
  const auto before = problem.out;
  const auto reverse = [](std::vector<float>& rows) {
    for (Index t = 0; t < 65; ++t) {
      std::swap_ranges(rows.begin() + t * 8, rows.begin() + (t + 1) * 8,
                       rows.begin() + (129 - t) * 8);
    }
  };
  reverse(problem.k);
  reverse(problem.v);
  linear_attention(problem.args());
  expect_close(problem.out, before, kTolerance, "reversed");
}

TEST(LinearAttentionProperty, the_last_causal_row_is_that_of_all_keys) {
  LinearProblem causal({.queries = 130, .keys = 130});
  LinearProblem all({.queries = 130, .keys = 130, .causal = false});
  linear_attention(causal.args());
  linear_attention(all.args());
  const auto last = [](const LinearProblem& problem) {
    return std::vector<float>(problem.out.end() - 8, problem.out.end());
  };
  expect_close(last(causal), last(all), kTolerance, "last row");
}

// Ever larger keys move the largest exponent at every token.
TEST(LinearAttentionProperty, keys_that_grow_with_every_token_keep_their_weights) {
  for (const bool grows : {false, true}) {
    LinearProblem problem({.heads = 2, .queries = 300, .keys = 300, .qk_dim = 16});
    for (Index t = 0; t < 300; ++t) {
      const float factor = 4 * static_cast<float>(grows ? t : 299 - t) / 300;
      for (Index i = t * 32; i < (t + 1) * 32; ++i) {
        problem.k[static_cast<std::size_t>(i)] *= factor;
      }
    }
    linear_attention(problem.args());
    linear_attention_grad(problem.grad_args());
    const auto out = problem.out, by_q = problem.grad_q, by_k = problem.grad_k;
    linear_attention_ref(problem.args());
    linear_attention_grad_ref(problem.grad_args());
    expect_close(out, problem.out, 2 * kTolerance, "out");
    expect_close(by_q, problem.grad_q, 4 * kTolerance, "q");
    expect_close(by_k, problem.grad_k, 4 * kTolerance, "k");
  }
}

}  // namespace
}  // namespace hone::kernels
