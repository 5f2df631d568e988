// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/linear_attention.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <functional>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/memory/memory_meter.h"
#include "tests/support/error_of.h"
#include "tests/train/sketch/attention_oracle.h"

namespace hone::nn {
namespace {

using hone::test::error_of;
using test::all_pairs;
using test::randn;
using test::relative_error;
using torch::Tensor;

using Attend = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>;

struct Inputs {
  explicit Inputs(Index queries, Index keys, double size = 1, Index features = 24)
      : q(randn({2, queries, 3, 8}, size)),
        k(randn({2, keys, 3, 8}, size)),
        v(randn({2, keys, 3, 5})),
        omega(orthogonal_features(features, 8, FeatureNorm::Chi, 7, 0)),
        by_out(randn({2, queries, 3, 5})) {}

  Inputs rounded(at::ScalarType type) const {
    Inputs out = *this;
    for (Tensor* x : {&out.q, &out.k, &out.v, &out.by_out}) *x = x->to(type).to(torch::kDouble);
    return out;
  }
  LinearAttentionMasks draw_masks() const {
    LinearAttentionMasks masks;
    masks.keys = torch::rand({2, k.size(1)}) < 0.7;
    masks.queries = torch::rand({2, q.size(1)}) < 0.7;
    masks.keys.select(1, 0).fill_(false);
    return masks;
  }
  // The output and the gradients by q, k, v, in f64, of what runs in `type`.
  std::vector<Tensor> run(const Attend& attend, at::ScalarType type = torch::kDouble) const {
    std::vector<Tensor> leaves;
    for (const Tensor& x : {q, k, v}) leaves.push_back(x.to(type).detach().requires_grad_());
    const Tensor out = attend(leaves[0], leaves[1], leaves[2]);
    std::vector<Tensor> results{out.detach()};
    for (const Tensor& grad : torch::autograd::grad({out}, leaves, {by_out.to(type)})) {
      results.push_back(grad);
    }
    return results;
  }

  Tensor q, k, v, omega, by_out;
};

void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double tolerance,
                 const std::string& what) {
  const char* const names[] = {"out", "q", "k", "v"};
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(relative_error(got[i], want[i]), tolerance) << what << ", " << names[i];
  }
}

std::vector<LinearAttentionOptions> all_options() {
  return {{FeatureKind::Softmax, false, 0},
          {FeatureKind::Softmax, true, 0},
          {FeatureKind::Relu, false, 1e-3},
          {FeatureKind::Relu, true, 1e-3}};
}

std::string text_of(const LinearAttentionOptions& options) {
  return concat(options.kind == FeatureKind::Relu ? "relu" : "softmax",
                options.causal ? " causal" : " all");
}

class LinearAttentionOp : public testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }
};

TEST_F(LinearAttentionOp, composed_is_the_definition_for_every_chunk_with_its_gradients) {
  for (const auto& options : all_options()) {
    for (const bool has_masks : {false, true}) {
      const Inputs in(70, options.causal ? 70 : 41);
      const LinearAttentionMasks masks = has_masks ? in.draw_masks() : LinearAttentionMasks();
      const auto want = in.run([&](const auto& q, const auto& k, const auto& v) {
        return all_pairs(q, k, v, in.omega, options, masks);
      });
      for (const Index chunk : {1, 7, 64, 1000}) {
        const auto got = in.run([&](const auto& q, const auto& k, const auto& v) {
          return composed::linear_attention(q, k, v, in.omega, options, masks, nullptr, chunk);
        });
        expect_same(got, want, 1e-10, concat(text_of(options), " chunk ", chunk));
      }
    }
  }
}

TEST_F(LinearAttentionOp, kernels_are_the_definition_with_its_gradients) {
  for (const auto& options : all_options()) {
    for (const bool has_masks : {false, true}) {
      const Inputs in(150, options.causal ? 150 : 90);
      const LinearAttentionMasks masks = has_masks ? in.draw_masks() : LinearAttentionMasks();
      const auto want = in.run([&](const auto& q, const auto& k, const auto& v) {
        return all_pairs(q, k, v, in.omega, options, masks);
      });
      const Attend attend = [&](const auto& q, const auto& k, const auto& v) {
        return linear_attention(q, k, v, in.omega, options, masks);
      };
      expect_same(in.run(attend, torch::kFloat), want, 5e-5, text_of(options));
      // Both sides take the same rounded tokens, because ReLU's derivative jumps.
      for (const auto& [type, tolerance] :
           {std::pair{torch::kHalf, 4e-3}, {torch::kBFloat16, 2e-2}}) {
        const Inputs rounded = in.rounded(type);
        const auto exact = rounded.run([&](const auto& q, const auto& k, const auto& v) {
          return all_pairs(q, k, v, in.omega, options, masks);
        });
        const auto got = rounded.run(attend, type);
        EXPECT_EQ(got[0].scalar_type(), type);
        expect_same(got, exact, tolerance, concat(text_of(options), ' ', c10::toString(type)));
      }
    }
  }
}

// The formula of libraries in which eps is added behind the largest exponent of all keys.
TEST_F(LinearAttentionOp, softmax_with_eps_is_the_formula_with_the_largest_of_all_keys) {
  const double eps = 1e-5;
  const Inputs in(20, 31, 2);
  const double m = static_cast<double>(in.omega.size(0));
  const auto features = [&](const Tensor& tokens, bool is_key) {
    const Tensor x = tokens.transpose(1, 2) / std::pow(8.0, 0.25);
    const Tensor exponent = at::matmul(x, in.omega.t()) - x.square().sum(-1, true) / 2;
    const Tensor largest = is_key ? exponent.amax({2, 3}, true) : exponent.amax(-1, true);
    return ((exponent - largest).exp() + eps) / std::sqrt(m);
  };
  const Tensor weights = at::matmul(features(in.q, false), features(in.k, true).transpose(2, 3));
  const Tensor want =
      at::matmul(weights / weights.sum(-1, true), in.v.transpose(1, 2)).transpose(1, 2);
  const Tensor got =
      linear_attention(in.q, in.k, in.v, in.omega, {FeatureKind::Softmax, false, eps});
  EXPECT_LE(relative_error(got, want), 1e-10);
  const Tensor single =
      linear_attention(in.q.to(torch::kFloat), in.k.to(torch::kFloat), in.v.to(torch::kFloat),
                       in.omega, {FeatureKind::Softmax, false, eps});
  EXPECT_LE(relative_error(single, want), 1e-4);
}

TEST_F(LinearAttentionOp, inputs_of_any_norm_give_finite_outputs_and_those_of_all_pairs) {
  for (const double size : {1e-3, 1e-1, 1.0, 1e1, 1e2, 1e3}) {
    for (const bool causal : {false, true}) {
      const LinearAttentionOptions options{FeatureKind::Softmax, causal, 0};
      const Inputs in(40, 40, size);
      const Tensor got = linear_attention(in.q, in.k, in.v, in.omega, options);
      const Tensor want = all_pairs(in.q, in.k, in.v, in.omega, options);
      EXPECT_TRUE(got.isfinite().all().item<bool>()) << size;
      // Rows that share no feature with a key are 0.
      const Tensor is_row = got.ne(0).any(-1, true);
      EXPECT_LE(relative_error(got * is_row, want * is_row), 1e-7) << size;
      if (size <= 10) {
        EXPECT_TRUE(is_row.all().item<bool>());
      }
      for (const at::ScalarType type : {torch::kFloat, torch::kHalf, torch::kBFloat16}) {
        const Tensor narrow =
            linear_attention(in.q.to(type), in.k.to(type), in.v.to(type), in.omega, options);
        EXPECT_TRUE(narrow.isfinite().all().item<bool>()) << size << " " << type;
      }
    }
  }
}

TEST_F(LinearAttentionOp, inputs_of_any_norm_give_finite_gradients) {
  for (const double size : {1.0, 3.0, 10.0, 30.0, 100.0, 1e3}) {
    for (const bool causal : {false, true}) {
      const Inputs in(300, 300, size);
      for (const at::ScalarType type : {torch::kFloat, torch::kDouble}) {
        const auto attend = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
          return linear_attention(q, k, v, in.omega.to(type), {FeatureKind::Softmax, causal, 0});
        };
        for (const Tensor& result : in.run(attend, type)) {
          EXPECT_TRUE(result.isfinite().all().item<bool>()) << size << causal << type;
        }
      }
    }
  }
}

TEST_F(LinearAttentionOp, tokens_in_parts_go_on_from_the_state) {
  const Inputs in(90, 90);
  for (const auto& options : all_options()) {
    if (!options.causal) continue;
    const LinearAttentionMasks masks = in.draw_masks();
    for (const at::ScalarType type : {torch::kDouble, torch::kFloat}) {
      const Tensor q = in.q.to(type), k = in.k.to(type), v = in.v.to(type);
      const Tensor whole = linear_attention(q, k, v, in.omega, options, masks);
      for (const Index part : {1, 37}) {
        LinearAttentionState state;
        std::vector<Tensor> parts;
        for (Index at = 0; at < 90; at += part) {
          const auto cut = [&](const Tensor& x) { return x.slice(1, at, at + part); };
          parts.push_back(linear_attention(cut(q), cut(k), cut(v), in.omega, options,
                                           {cut(masks.keys), cut(masks.queries)}, &state));
        }
        EXPECT_EQ(state.position, 90);
        EXPECT_LE(relative_error(at::cat(parts, 1), whole), type == torch::kDouble ? 1e-10 : 5e-5)
            << text_of(options) << " parts of " << part;
      }
    }
  }
}

TEST_F(LinearAttentionOp, a_copy_of_a_state_goes_on_by_itself) {
  const Inputs in(10, 10);
  const LinearAttentionOptions options{FeatureKind::Softmax, true, 0};
  const auto step = [&](Index at, LinearAttentionState& state) {
    const auto cut = [&](const Tensor& x) { return x.slice(1, at, at + 1).to(torch::kFloat); };
    return linear_attention(cut(in.q), cut(in.k), cut(in.v), in.omega, options, {}, &state);
  };
  LinearAttentionState state;
  step(0, state);
  LinearAttentionState copy = state.clone();
  EXPECT_EQ(copy.position, 1);
  step(5, state);
  const Tensor expected = step(1, copy);
  LinearAttentionState fresh;
  step(0, fresh);
  EXPECT_TRUE(expected.equal(step(1, fresh)));
}

// The error of an average of m independent terms falls as 1/sqrt(m).
TEST_F(LinearAttentionOp, approaches_exact_attention_with_more_features) {
  const Inputs in(48, 48, 0.4);
  const Tensor exact = at::scaled_dot_product_attention(in.q.transpose(1, 2), in.k.transpose(1, 2),
                                                        in.v.transpose(1, 2), {}, 0.0, true)
                           .transpose(1, 2);
  std::vector<double> logs;
  for (const Index features : {64, 256, 1024, 4096}) {
    double sum = 0;
    for (std::uint32_t draw = 0; draw < 12; ++draw) {
      const Tensor omega = orthogonal_features(features, 8, FeatureNorm::Chi, 5, draw);
      const Tensor got = linear_attention(in.q, in.k, in.v, omega, {FeatureKind::Softmax, true, 0});
      sum += (got - exact).square().mean().item<double>();
    }
    logs.push_back(std::log(sum / 12) / 2);
  }
  const double slope =
      (3 * (logs[3] - logs[0]) + (logs[2] - logs[1])) / (10 * std::log(4.0));  // least squares
  EXPECT_NEAR(slope, -0.5, 0.15);
}

TEST_F(LinearAttentionOp, an_autocast_scope_changes_nothing) {
  const Inputs in(20, 20);
  for (const at::ScalarType type : {torch::kFloat, torch::kDouble}) {
    const Tensor q = in.q.to(type), k = in.k.to(type), v = in.v.to(type);
    const LinearAttentionOptions options{FeatureKind::Softmax, true, 0};
    const Tensor want = composed::linear_attention(q, k, v, in.omega, options);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const Tensor got = composed::linear_attention(q, k, v, in.omega, options);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_TRUE(got.equal(want));
  }
}

TEST_F(LinearAttentionOp, checkpoints_grow_as_the_tokens) {
  const auto saved = [&](Index tokens) {
    kernels::LinearAttentionArgs args{.batch = 1,
                                      .heads = 4,
                                      .queries = tokens,
                                      .keys = tokens,
                                      .qk_dim = 64,
                                      .v_dim = 64,
                                      .features = 256,
                                      .causal = true};
    return static_cast<double>(args.checkpoint_floats()) / (4 * 64 * static_cast<double>(tokens));
  };
  EXPECT_NEAR(saved(32768), saved(4096), 1e-9);
  EXPECT_LT(saved(8192), 0.51);  // against 1 for each of q, k, v and out
}

TEST_F(LinearAttentionOp, memory_of_a_graph_grows_as_the_tokens) {
  const memory::MemoryMeter meter;
  const auto held = [&](Index tokens) {
    const Inputs in(tokens, tokens);
    const Tensor q = in.q.to(torch::kFloat).requires_grad_();
    const Index before = meter.use().current;
    const Tensor out = linear_attention(q, in.k.to(torch::kFloat), in.v.to(torch::kFloat), in.omega,
                                        {FeatureKind::Softmax, true, 0});
    return static_cast<double>(meter.use().current - before);
  };
  EXPECT_NEAR(held(4096) / held(1024), 4, 0.1);
}

TEST(OrthogonalFeatures, have_orthogonal_rows_within_a_block) {
  const Index dim = 16;
  const Tensor omega = orthogonal_features(40, dim, FeatureNorm::Root, 1, 0);
  EXPECT_EQ(omega.sizes(), (std::vector<Index>{40, dim}));
  const Tensor gram = at::matmul(omega, omega.t());
  for (Index begin = 0; begin < 40; begin += dim) {
    const Tensor block = gram.slice(0, begin, begin + dim).slice(1, begin, begin + dim);
    const Tensor want = at::eye(block.size(0), torch::kDouble) * static_cast<double>(dim);
    EXPECT_LE((block - want).abs().max().item<double>(), 1e-12);
  }
  EXPECT_GT(gram.slice(0, 0, dim).slice(1, dim).abs().max().item<double>(), 1);
}

TEST(OrthogonalFeatures, have_the_distribution_of_gaussian_rows) {
  const Index rows = 16000, dim = 8;
  const Tensor omega = orthogonal_features(rows, dim, FeatureNorm::Chi, 2, 0);
  const double n = static_cast<double>(rows);
  const Tensor squares = omega.square().sum(1);  // chi-squared: mean 8, variance 16
  EXPECT_NEAR(squares.mean().item<double>(), 8, 5 * std::sqrt(16 / n));
  EXPECT_NEAR(squares.var().item<double>(), 16, 5 * std::sqrt(800 / n) * 2);
  EXPECT_LE(omega.mean(0).abs().max().item<double>(), 5 / std::sqrt(n));
  const Tensor moments = at::matmul(omega.t(), omega) / n;
  EXPECT_LE((moments - at::eye(dim, torch::kDouble)).abs().max().item<double>(),
            5 * std::sqrt(2 / n));
  EXPECT_NEAR(omega.pow(4).mean().item<double>(), 3, 0.1);
}

TEST(OrthogonalFeatures, products_have_the_mean_of_the_kernels) {
  torch::manual_seed(1);
  const Index dim = 8, rows = 64000;
  const Tensor omega = orthogonal_features(rows, dim, FeatureNorm::Chi, 3, 0);
  const Tensor x = randn({dim}, 0.7), y = randn({dim}, 0.7);
  const Tensor by_x = at::matmul(omega, x), by_y = at::matmul(omega, y);
  const double norms = (x.norm() * y.norm()).item<double>(), dot = x.dot(y).item<double>();
  const auto expect_mean = [&](const Tensor& products, double want) {
    const double error = (products.std() / std::sqrt(static_cast<double>(rows))).item<double>();
    EXPECT_NEAR(products.mean().item<double>(), want, 5 * error);
  };
  const double angle = std::acos(dot / norms), pi = std::acos(-1.0);
  expect_mean(by_x.relu() * by_y.relu(),  // Cho and Saul, "Kernel methods for deep learning"
              norms / (2 * pi) * (std::sin(angle) + (pi - angle) * std::cos(angle)));
  const double scale = std::pow(8.0, -0.25);
  const auto feature = [&](const Tensor& product, const Tensor& token) {
    return (product * scale - (token * scale).square().sum() / 2).exp();
  };
  expect_mean(feature(by_x, x) * feature(by_y, y), std::exp(dot / std::sqrt(8.0)));
}

TEST(OrthogonalFeatures, are_a_function_of_seed_and_draw_alone) {
  const auto draw = [](std::uint64_t seed, std::uint32_t number) {
    return orthogonal_features(10, 4, FeatureNorm::Chi, seed, number);
  };
  EXPECT_TRUE(draw(1, 0).equal(draw(1, 0)));
  EXPECT_FALSE(draw(1, 0).equal(draw(2, 0)));
  EXPECT_FALSE(draw(1, 0).equal(draw(1, 1)));
  EXPECT_EQ(error_of([] { orthogonal_features(0, 4, FeatureNorm::Chi, 1, 0); }),
            "[orthogonal_features] expected features and dim of at least 1, got 0 and 4");
}

TEST_F(LinearAttentionOp, names_what_is_wrong) {
  const Inputs in(6, 5);
  const auto message = [&](const LinearAttentionOptions& options, LinearAttentionMasks masks = {},
                           LinearAttentionState* state = nullptr) {
    return error_of([&] { linear_attention(in.q, in.k, in.v, in.omega, options, masks, state); });
  };
  EXPECT_EQ(message({FeatureKind::Softmax, true, 0}),
            "[linear_attention] expected 6 keys for causal queries, got 5");
  EXPECT_EQ(message({FeatureKind::Softmax, true, 1e-5}),
            "[linear_attention] Causal softmax features have no eps, because it would be relative "
            "to later keys.");
  EXPECT_EQ(message({FeatureKind::Relu, false, -1}),
            "[linear_attention] expected a finite eps >= 0, got -1");
  EXPECT_EQ(message({}, {torch::ones({2, 6}, torch::kBool), {}}),
            "[linear_attention] expected a bool mask of keys [2, 5] on their device, got Bool [2, "
            "6]");
  EXPECT_EQ(message({}, {{}, torch::ones({2, 6})}),
            "[linear_attention] expected a bool mask of queries [2, 6] on their device, got Float "
            "[2, 6]");
  LinearAttentionState state;
  EXPECT_EQ(message({}, {}, &state), "[linear_attention] Only causal attention has a state.");
  EXPECT_EQ(error_of([&] { linear_attention(in.q, in.k.narrow(3, 0, 4), in.v, in.omega, {}); }),
            "[linear_attention] expected q [b, t, h, d], k [b, s, h, d], v [b, s, h, e] and omega "
            "[m, d], got [2, 6, 3, 8], [2, 5, 3, 4], [2, 5, 3, 5] and [24, 8]");
  state.z = torch::zeros({2, 3, 6, 23});
  EXPECT_EQ(error_of([&] {
              const Tensor q = in.q.to(torch::kFloat), v = q.narrow(3, 0, 5);
              linear_attention(q, q, v, in.omega, {FeatureKind::Softmax, true, 0}, {}, &state);
            }),
            "[linear_attention] expected a state [2, 3, 6, 24] of Float where q is, got [2, 3, 6, "
            "23] of Float");
}

}  // namespace
}  // namespace hone::nn
