// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/attention/linear_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/attention/linear_attention_support.h"

namespace hone::kernels {
namespace {

using test::error_of;
using test::expect_close;
using test::kInfinity;
using test::kNan;
using test::LinearCase;
using test::LinearProblem;

// Sizes around chunks of 64 and segments of 512 tokens, and widths around every vector.
std::vector<LinearCase> cases() {
  std::vector<LinearCase> all;
  for (const FeatureKind kind : {FeatureKind::Softmax, FeatureKind::Relu}) {
    const float eps = kind == FeatureKind::Relu ? 1e-3f : 0;
    for (const Index tokens : {1, 2, 63, 64, 65, 131}) {
      all.push_back({.batch = 2,
                     .heads = 2,
                     .queries = tokens,
                     .keys = tokens,
                     .qk_dim = 8,
                     .v_dim = 5,
                     .features = 19,
                     .kind = kind,
                     .eps = eps});
    }
    all.push_back({.heads = 1,
                   .queries = 1100,
                   .keys = 1100,
                   .qk_dim = 4,
                   .v_dim = 3,
                   .features = 8,
                   .kind = kind,
                   .eps = eps});
    all.push_back({.heads = 2,
                   .queries = 70,
                   .keys = 70,
                   .qk_dim = 64,
                   .v_dim = 64,
                   .features = 128,
                   .kind = kind,
                   .eps = eps});
    for (const Index keys : {1, 40, 64, 200}) {
      all.push_back({.batch = 2,
                     .heads = 3,
                     .queries = 100,
                     .keys = keys,
                     .qk_dim = 33,
                     .v_dim = 17,
                     .features = 40,
                     .kind = kind,
                     .causal = false,
                     .eps = eps});
    }
  }
  return all;
}

// The products of an exponent are rounded, relative to their sizes of a few units.
constexpr double kTolerance = 3e-5;

TEST(LinearAttention, matches_a_sum_over_all_pairs_in_double) {
  for (const bool has_masks : {false, true}) {
    for (const LinearCase& c : cases()) {
      LinearProblem problem(c);
      if (has_masks) problem.draw_masks();
      linear_attention(problem.args());
      const auto got = problem.out;
      linear_attention_ref(problem.args());
      expect_close(got, problem.out, kTolerance, c.text() + (has_masks ? " masked" : ""));
    }
  }
}

TEST(LinearAttention, gradient_matches_a_sum_over_all_pairs_in_double) {
  for (const bool has_masks : {false, true}) {
    for (const LinearCase& c : cases()) {
      LinearProblem problem(c);
      if (has_masks) problem.draw_masks();
      linear_attention(problem.args());
      linear_attention_grad(problem.grad_args());
      const auto by_q = problem.grad_q, by_k = problem.grad_k, by_v = problem.grad_v;
      linear_attention_grad_ref(problem.grad_args());
      const std::string what = c.text() + (has_masks ? " masked" : "");
      expect_close(by_v, problem.grad_v, kTolerance, what + " v");
      // Where all rows have one key, these gradients are 0 but for rounding.
      if (c.keys == 1 || (has_masks && c.keys == 2)) continue;
      expect_close(by_q, problem.grad_q, 4 * kTolerance, what + " q");
      expect_close(by_k, problem.grad_k, 4 * kTolerance, what + " k");
    }
  }
}

// Sum of out * grad_out, by the reference.
double loss_of(LinearProblem& problem) {
  linear_attention_ref(problem.args());
  double sum = 0;
  for (std::size_t i = 0; i < problem.out.size(); ++i) {
    sum += static_cast<double>(problem.out[i]) * problem.grad_out[i];
  }
  return sum;
}

TEST(LinearAttention, gradient_of_the_reference_is_that_of_differences) {
  for (const FeatureKind kind : {FeatureKind::Softmax, FeatureKind::Relu}) {
    for (const bool causal : {false, true}) {
      LinearProblem problem({.heads = 2,
                             .queries = 5,
                             .keys = 5,
                             .qk_dim = 4,
                             .v_dim = 3,
                             .features = 6,
                             .kind = kind,
                             .causal = causal,
                             .eps = 0.1f});
      problem.draw_masks();
      linear_attention_grad_ref(problem.grad_args());
      const auto check = [&](std::vector<float>& x, const std::vector<float>& grad,
                             const char* name) {
        for (std::size_t i = 0; i < x.size(); ++i) {
          const float kept = x[i], step = 1e-3f;
          x[i] = kept + step;
          const double above = loss_of(problem);
          x[i] = kept - step;
          const double below = loss_of(problem);
          x[i] = kept;
          EXPECT_NEAR(grad[i], (above - below) / (2 * step), 1e-3) << name << " " << i;
        }
      };
      check(problem.q, problem.grad_q, "q");
      check(problem.k, problem.grad_k, "k");
      check(problem.v, problem.grad_v, "v");
    }
  }
}

// Features of a token relative to those of later ones would let the future into the past.
TEST(LinearAttention, later_tokens_do_not_change_a_bit_of_earlier_outputs) {
  const Index tokens = 200;
  for (const FeatureKind kind : {FeatureKind::Softmax, FeatureKind::Relu}) {
    LinearProblem problem({.heads = 2, .queries = tokens, .keys = tokens, .kind = kind});
    linear_attention(problem.args());
    const auto before = problem.out;
    for (const Index changed : {199, 128, 127, 70, 64, 63, 10, 1}) {
      const Index qk = 2 * 8 * changed;
      for (Index i = qk; i < qk + 16; ++i) {
        problem.q[static_cast<std::size_t>(i)] += 1;
        problem.k[static_cast<std::size_t>(i)] *= 9;  // the largest exponent of all
        problem.v[static_cast<std::size_t>(i)] = -40;
      }
      linear_attention(problem.args());
      EXPECT_EQ(0, std::memcmp(problem.out.data(), before.data(),
                               static_cast<std::size_t>(qk) * sizeof(float)))
          << changed;
      EXPECT_NE(problem.out[static_cast<std::size_t>(qk)], before[static_cast<std::size_t>(qk)]);
    }
  }
}

TEST(LinearAttention, tokens_one_by_one_and_in_parts_give_what_the_whole_gives) {
  for (const FeatureKind kind : {FeatureKind::Softmax, FeatureKind::Relu}) {
    const Index tokens = 150, heads = 2, dim = 8;
    LinearProblem problem({.heads = heads,
                           .queries = tokens,
                           .keys = tokens,
                           .qk_dim = dim,
                           .v_dim = dim,
                           .features = 21,
                           .kind = kind,
                           .size = 3});
    problem.draw_masks();
    linear_attention(problem.args());
    const auto whole = problem.out;
    for (const Index part : {1, 37, 64, 150}) {
      LinearAttentionArgs args = problem.args();
      std::vector<float> state(static_cast<std::size_t>(heads * args.state_floats()));
      std::vector<float> exponents(static_cast<std::size_t>(heads), -kInfinity);
      std::fill(problem.out.begin(), problem.out.end(), -7.0f);
      for (Index first = 0; first < tokens; first += part) {
        const Index count = std::min(part, tokens - first), at = first * heads * dim;
        LinearAttentionArgs piece = args;
        piece.queries = piece.keys = count;
        piece.q += at, piece.k += at, piece.v += at, piece.out += at;
        piece.key_mask += first, piece.query_mask += first;
        piece.inverse_sums = piece.checkpoints = nullptr;
        piece.state = state.data();
        piece.max_exponent = exponents.data();
        linear_attention(piece);
      }
      expect_close(problem.out, whole, kTolerance, concat("parts of ", part));
    }
  }
}

TEST(LinearAttention, masked_tokens_are_as_if_they_were_not_there) {
  const Index tokens = 130, dim = 8;
  for (const bool causal : {false, true}) {
    LinearProblem problem({.queries = tokens, .keys = tokens, .causal = causal});
    problem.draw_masks();
    std::vector<float> q, k, v, grad_out;
    Index kept = 0;
    for (Index t = 0; t < tokens; ++t) {  // both masks alike, so that causal orders agree
      const auto token = static_cast<std::size_t>(t);
      problem.query_mask[token] = problem.key_mask[token];
      const auto copy = [&](const std::vector<float>& from, std::vector<float>& to) {
        to.insert(to.end(), from.begin() + t * dim, from.begin() + (t + 1) * dim);
      };
      if (problem.key_mask[token]) {
        copy(problem.q, q), copy(problem.k, k), copy(problem.v, v), ++kept;
        copy(problem.grad_out, grad_out);
      } else {
        for (auto* values : {&problem.q, &problem.k, &problem.v}) {
          std::fill_n(values->begin() + t * dim, dim, kNan);
        }
      }
    }
    linear_attention(problem.args());
    linear_attention_grad(problem.grad_args());
    LinearProblem dropped({.queries = kept, .keys = kept, .causal = causal});
    dropped.q = q, dropped.k = k, dropped.v = v, dropped.grad_out = grad_out;
    linear_attention(dropped.args());
    linear_attention_grad(dropped.grad_args());
    for (Index t = 0; t < tokens; ++t) {
      const auto begin = problem.out.begin() + t * dim;
      if (!problem.key_mask[static_cast<std::size_t>(t)]) {
        for (Index i = 0; i < dim; ++i) {
          EXPECT_EQ(begin[i], 0);
          EXPECT_EQ(problem.grad_q[static_cast<std::size_t>(t * dim + i)], 0);
          EXPECT_EQ(problem.grad_k[static_cast<std::size_t>(t * dim + i)], 0);
          EXPECT_EQ(problem.grad_v[static_cast<std::size_t>(t * dim + i)], 0);
        }
      }
    }
    const auto kept_of = [&](const std::vector<float>& all) {
      std::vector<float> rows;
      for (Index t = 0; t < tokens; ++t) {
        if (!problem.key_mask[static_cast<std::size_t>(t)]) continue;
        rows.insert(rows.end(), all.begin() + t * dim, all.begin() + (t + 1) * dim);
      }
      return rows;
    };
    const std::string which = causal ? "causal" : "all";
    expect_close(kept_of(problem.out), dropped.out, kTolerance, which);
    expect_close(kept_of(problem.grad_v), dropped.grad_v, kTolerance, which + ", v");
    expect_close(kept_of(problem.grad_q), dropped.grad_q, 4 * kTolerance, which + ", q");
    expect_close(kept_of(problem.grad_k), dropped.grad_k, 4 * kTolerance, which + ", k");
  }
}

TEST(LinearAttention, is_finite_and_right_for_inputs_of_any_norm) {
  for (const bool causal : {false, true}) {
    for (const float size : {1e-3f, 1e-1f, 1e1f, 1e2f, 1e3f}) {
      const LinearCase c{.heads = 2, .queries = 100, .keys = 100, .causal = causal, .size = size};
      LinearProblem problem(c);
      linear_attention(problem.args());
      linear_attention_grad(problem.grad_args());
      for (const auto* values : {&problem.out, &problem.grad_v, &problem.grad_q, &problem.grad_k}) {
        for (const float value : *values) ASSERT_TRUE(std::isfinite(value)) << size;
      }
      const auto got = problem.out;
      linear_attention_ref(problem.args());
      // An exponent of size^2 is rounded, to its relative error the weight of a key moves.
      if (size <= 10) expect_close(got, problem.out, kTolerance * (1 + size), c.text());
    }
  }
}

TEST(LinearAttention, a_nan_in_a_key_or_query_shows_in_what_involves_it) {
  for (const FeatureKind kind : {FeatureKind::Softmax, FeatureKind::Relu}) {
    LinearProblem problem({.queries = 100, .keys = 100, .kind = kind, .eps = 1e-3f});
    problem.k[70 * 8] = kNan;
    problem.q[30 * 8] = kNan;
    linear_attention(problem.args());
    for (Index i = 0; i < 100; ++i) {
      const bool is_nan = std::isnan(problem.out[static_cast<std::size_t>(i * 8)]);
      EXPECT_EQ(is_nan, i == 30 || i >= 70) << i;
    }
  }
}

TEST(LinearAttention, has_the_same_bits_for_every_number_of_threads) {
  LinearProblem problem({.batch = 2, .heads = 3, .queries = 300, .keys = 300});
  linear_attention(problem.args());
  linear_attention_grad(problem.grad_args());
  const auto out = problem.out, by_q = problem.grad_q, by_k = problem.grad_k, by_v = problem.grad_v;
  ThreadPool pool(3);
  linear_attention(problem.args(), pool);
  linear_attention_grad(problem.grad_args(), pool);
  EXPECT_EQ(out, problem.out);
  EXPECT_EQ(by_q, problem.grad_q);
  EXPECT_EQ(by_k, problem.grad_k);
  EXPECT_EQ(by_v, problem.grad_v);
}

TEST(LinearAttention, reads_nothing_behind_its_inputs) {
  LinearProblem problem(
      {.heads = 1, .queries = 67, .keys = 67, .qk_dim = 5, .v_dim = 3, .features = 7});
  linear_attention(problem.args());
  const auto expected = problem.out;
  const test::GuardedFloats q(problem.q), k(problem.k), v(problem.v), omega(problem.omega);
  const test::GuardedFloats out(std::vector<float>(problem.out.size(), -7.0f));
  LinearAttentionArgs args = problem.args();
  args.q = q.data(), args.k = k.data(), args.v = v.data(), args.omega = omega.data();
  args.out = out.data();
  linear_attention(args);
  EXPECT_EQ(0, std::memcmp(out.data(), expected.data(), expected.size() * sizeof(float)));
}

TEST(LinearAttention, no_tokens_are_allowed) {
  LinearProblem none({.queries = 0, .keys = 0});
  linear_attention(none.args());
  linear_attention_grad(none.grad_args());
  LinearProblem no_keys({.queries = 3, .keys = 0, .causal = false});
  linear_attention(no_keys.args());
  linear_attention_grad(no_keys.grad_args());
  EXPECT_EQ(no_keys.out, std::vector<float>(24, 0.0f));
  EXPECT_EQ(no_keys.grad_q, std::vector<float>(24, 0.0f));
}

TEST(LinearAttention, names_what_is_wrong) {
  LinearProblem problem({.queries = 4, .keys = 4});
  const auto message = [&](const std::function<void(LinearAttentionArgs&)>& spoil) {
    LinearAttentionArgs args = problem.args();
    spoil(args);
    return error_of([&] { linear_attention(args); });
  };
  EXPECT_EQ(message([](auto& args) { args.keys = 3; }),
            "[linear_attention] expected 4 keys for causal queries, got 3");
  EXPECT_EQ(message([](auto& args) { args.eps = -1; }),
            "[linear_attention] expected a finite eps >= 0, got -1");
  EXPECT_EQ(message([](auto& args) { args.features = 0; }),
            "[linear_attention] expected batch, queries, keys >= 0 and heads, dims, features >= 1, "
            "got 1, 4, 4 and 1, 8, 8, 0");
  float state = 0;
  EXPECT_EQ(message([&](auto& args) { args.state = &state; }),
            "[linear_attention] Only causal attention goes on from a state, and both of its parts "
            "are needed.");
  EXPECT_EQ(error_of([&] {
              LinearAttentionGradArgs args = problem.grad_args();
              args.forward.checkpoints = nullptr;
              linear_attention_grad(args);
            }),
            "[linear_attention_grad] The gradient needs inverse_sums and checkpoints, and has no "
            "state.");
}

}  // namespace
}  // namespace hone::kernels
