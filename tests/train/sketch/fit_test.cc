// SPDX-License-Identifier: Apache-2.0
// The errors of fits against their closed forms, and that no step improves an optimal one.
#include "hone/train/sketch/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <limits>
#include <vector>

#include "hone/train/sketch/convert.h"
#include "tests/support/error_of.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using test::relative;
using test::seeded_normal;
using ::testing::HasSubstr;
using torch::Tensor;

constexpr Index kIn = 48, kOut = 36;

FactoredLinearOptions of_width(Index in, Index out, Index terms, Index low_rank,
                               std::uint64_t seed) {
  FactoredLinearOptions options;
  options.in_features = in;
  options.out_features = out;
  options.rank = 2 * terms * low_rank;
  options.terms = terms;
  options.bias = false;
  options.seed = seed;
  return options;
}
sketch::FixedSigns signs_of(const FactoredLinearOptions& options) {
  const auto [u1, u2] = fixed_signs_of(options, at::kDouble);
  return {u1, u2, options.terms};
}
// W_eff [out, in] of a sketched layer.
Tensor effective(const sketch::FactorPair& fit, const sketch::FixedSigns& signs) {
  return (at::mm(signs.u1.t(), fit.first) + at::mm(fit.second.t(), signs.u2)) /
         (2.0 * static_cast<double>(signs.terms));
}
Tensor effective(const sketch::FactorPair& fit) { return at::mm(fit.second.t(), fit.first); }

// The orthogonal projection on the rows of m.
Tensor projection(const Tensor& m) { return at::mm(at::linalg_pinv(m), m); }

// σ_i ∝ i^-1 between random orthonormal bases.
Tensor decaying(Index out, Index in, std::uint64_t seed) {
  const Index n = std::min(out, in);
  const Tensor u = std::get<0>(at::linalg_qr(seeded_normal({out, n}, seed)));
  const Tensor v = std::get<0>(at::linalg_qr(seeded_normal({in, n}, seed + 1)));
  return at::mm(u / at::arange(1, n + 1, at::kDouble), v.t());
}

TEST(RandomFit, is_right_on_average_over_seeds) {
  constexpr int kSeeds = 2000;
  const Tensor weight = seeded_normal({6, 8}, 1);
  Tensor sum = at::zeros_like(weight), squares = at::zeros_like(weight);
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto signs = signs_of(of_width(8, 6, 1, 4, seed));
    const Tensor drawn = effective(sketch::fit_random(weight, signs), signs);
    sum += drawn;
    squares += drawn.square();
  }
  const Tensor mean = sum / kSeeds;
  const Tensor error = ((squares / kSeeds - mean.square()) / kSeeds).sqrt();
  EXPECT_LE(((mean - weight).abs() / error).max().item<double>(), 5.0);
}

TEST(RandomFit, has_the_mean_squared_error_of_independent_signs) {
  constexpr int kSeeds = 50;
  const Tensor weight = seeded_normal({kOut, kIn}, 2);
  for (const Index terms : {1, 3}) {
    double sum = 0;
    for (int seed = 0; seed < kSeeds; ++seed) {
      const auto signs = signs_of(of_width(kIn, kOut, terms, 4, seed));
      sum += std::pow(relative(effective(sketch::fit_random(weight, signs), signs), weight), 2);
    }
    const double want = (kIn + kOut - 2) / (4.0 * 4 * static_cast<double>(terms));
    EXPECT_NEAR(sum / kSeeds / want, 1, 0.05);
  }
}

TEST(ProjectionFit, leaves_what_both_projections_leave) {
  const Tensor weight = seeded_normal({kOut, kIn}, 3);
  double ratios = 0;
  constexpr int kSeeds = 20;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto signs = signs_of(of_width(kIn, kOut, 2, 4, seed));
    const Tensor rest = weight - effective(sketch::fit_projection(weight, signs), signs);
    const Tensor p1 = projection(signs.u1), p2 = projection(signs.u2);
    const Tensor want = at::mm(weight - at::mm(p1, weight), at::eye(kIn, at::kDouble) - p2);
    EXPECT_LE(relative(rest, want), 1e-10);
    const double random = relative(effective(sketch::fit_random(weight, signs), signs), weight);
    const double ratio = rest.norm().item<double>() / weight.norm().item<double>();
    EXPECT_LE(ratio, std::min(1.0, random));
    ratios += ratio * ratio;
  }
  const double want = (1 - 8.0 / kIn) * (1 - 8.0 / kOut);
  EXPECT_NEAR(ratios / kSeeds / want, 1, 0.05);
}

TEST(ProjectionFit, is_exact_where_the_signs_span_everything) {
  const Tensor weight = seeded_normal({12, 16}, 4);
  const auto signs = signs_of(of_width(16, 12, 1, 24, 5));
  EXPECT_LE(relative(effective(sketch::fit_projection(weight, signs), signs), weight), 1e-9);
}

TEST(SvdFit, has_the_error_of_eckart_and_young_and_balanced_factors) {
  for (const Tensor& weight : {seeded_normal({kOut, kIn}, 6), decaying(kOut, kIn, 7)}) {
    const Tensor values = at::linalg_svdvals(weight);
    for (const Index rank : {1, 10, 36}) {
      const auto fit = sketch::fit_svd(weight, rank);
      const double tail =
          values.narrow(0, rank, kOut - rank).norm().item<double>() / weight.norm().item<double>();
      EXPECT_NEAR(relative(effective(fit), weight), tail, 1e-9);
      EXPECT_LE(relative(at::mm(fit.first, fit.first.t()), at::mm(fit.second, fit.second.t())),
                1e-9);
    }
  }
  const auto more = sketch::fit_svd(seeded_normal({4, 6}, 8), 7);
  EXPECT_EQ(more.first.size(0), 7);
  EXPECT_LE(relative(effective(more), seeded_normal({4, 6}, 8)), 1e-12);
}

TEST(SvdFit, is_near_the_least_error_where_the_svd_is_randomized) {
  for (const Tensor& weight : {seeded_normal({640, 512}, 6), decaying(512, 640, 7)}) {
    constexpr Index kRank = 40, kSide = 512;
    const Tensor values = at::linalg_svdvals(weight);
    const double tail = values.narrow(0, kRank, kSide - kRank).norm().item<double>();
    const auto fit = sketch::fit_svd(weight, kRank);
    EXPECT_LE(relative(effective(fit), weight), 1.01 * tail / weight.norm().item<double>());
    EXPECT_LE(relative(at::mm(fit.first, fit.first.t()), at::mm(fit.second, fit.second.t())), 1e-9);
  }
}

sketch::InputMoments moments_of(const Tensor& x) {
  sketch::InputMoments moments;
  moments.add(x.narrow(0, 0, 100));
  moments.add(x.narrow(0, 100, x.size(0) - 100).view({2, -1, x.size(1)}));
  return moments;
}
Tensor anisotropic_inputs() {
  const Tensor scales = at::arange(1, kIn + 1, at::kDouble).pow(-1.5);
  return at::mm(seeded_normal({400, kIn}, 9) * scales, seeded_normal({kIn, kIn}, 10)) + 0.3;
}

TEST(InputMoments, add_up_to_those_of_all_rows) {
  const Tensor x = anisotropic_inputs();
  const auto moments = moments_of(x);
  EXPECT_EQ(moments.rows, 400);
  EXPECT_LE(relative(moments.mean, x.mean(0)), 1e-13);
  EXPECT_LE(relative(moments.second, at::mm(x.t(), x)), 1e-13);
}

TEST(ActivationFit, has_the_least_error_of_the_outputs) {
  const Tensor x = anisotropic_inputs(), weight = seeded_normal({kOut, kIn}, 11);
  const auto moments = moments_of(x);
  const Tensor y = at::mm(x, weight.t());
  const auto error = [&](const Tensor& w) { return relative(at::mm(x, w.t()), y); };
  const double aware = error(effective(sketch::fit_svd(weight, 6, &moments)));
  // x W' of rank 6 cannot be nearer to x W than the SVD of x W.
  const double least =
      at::linalg_svdvals(y).narrow(0, 6, kOut - 6).norm().item<double>() / y.norm().item<double>();
  EXPECT_LE(aware, least * 1.01 + 1e-4);
  EXPECT_GE(aware, least * (1 - 1e-9));
  EXPECT_LT(aware, 0.5 * error(effective(sketch::fit_svd(weight, 6))));
  const auto signs = signs_of(of_width(kIn, kOut, 1, 8, 3));
  EXPECT_LT(error(effective(sketch::fit_projection(weight, signs, &moments), signs)),
            error(effective(sketch::fit_projection(weight, signs), signs)));
}

// At an optimum, the gradients of the squared error vanish.
TEST(Fits, cannot_be_improved_by_a_step) {
  const Tensor x = anisotropic_inputs(), weight = seeded_normal({kOut, kIn}, 12);
  const auto moments = moments_of(x);
  const auto signs = signs_of(of_width(kIn, kOut, 2, 4, 3));
  const auto slope = [&](const sketch::FactorPair& fit, bool is_sketched, const Tensor& inputs) {
    const Tensor first = fit.first.clone().set_requires_grad(true);
    const Tensor second = fit.second.clone().set_requires_grad(true);
    const Tensor w = is_sketched ? effective({first, second}, signs) : effective({first, second});
    const Tensor loss =
        at::mm(inputs, (w - weight).t()).square().sum() / at::mm(inputs, weight.t()).square().sum();
    loss.backward();
    return std::max((first.grad().norm() * first.norm()).item<double>(),
                    (second.grad().norm() * second.norm()).item<double>());
  };
  const Tensor identity = at::eye(kIn, at::kDouble);
  EXPECT_LE(slope(sketch::fit_projection(weight, signs), true, identity), 1e-9);
  EXPECT_LE(slope(sketch::fit_svd(weight, 6), false, identity), 1e-9);
  EXPECT_LE(slope(sketch::fit_projection(weight, signs, &moments), true, x), 1e-3);
  EXPECT_LE(slope(sketch::fit_svd(weight, 6, &moments), false, x), 1e-3);
  EXPECT_GT(slope(sketch::fit_random(weight, signs), true, identity), 1e-2);
}

TEST(OneSidedFit, leaves_what_one_projection_leaves) {
  const Tensor weight = seeded_normal({kOut, kIn}, 13), u = seeded_normal({8, kOut}, 14);
  const Tensor s = sketch::fit_one_sided(weight, u);
  EXPECT_LE(relative(weight - at::mm(u.t(), s), weight - at::mm(projection(u), weight)), 1e-10);
}

TEST(RankForError, is_the_smallest_that_holds) {
  const Tensor weight = decaying(kOut, kIn, 15);
  for (const double error : {0.9, 0.3, 0.05}) {
    const Index rank = sketch::rank_for_error(weight, error);
    EXPECT_LE(relative(effective(sketch::fit_svd(weight, rank)), weight), error);
    if (rank > 1) {
      EXPECT_GT(relative(effective(sketch::fit_svd(weight, rank - 1)), weight), error);
    }
  }
  EXPECT_EQ(sketch::rank_for_error(at::zeros({4, 5}), 0.5), 1);
}

TEST(Recompress, finds_the_rank_of_a_product) {
  const auto three = sketch::fit_svd(decaying(kOut, kIn, 16), 3);
  const sketch::FactorPair wide{at::cat({three.first, three.first}),
                                at::cat({three.second, three.second})};
  const auto small = sketch::recompress(wide, 1e-9);
  EXPECT_EQ(small.first.size(0), 3);
  EXPECT_LE(relative(effective(small), effective(wide)), 1e-9);
  const auto coarse = sketch::recompress(wide, 0.7);
  EXPECT_LT(coarse.first.size(0), 3);
  EXPECT_LE(relative(effective(coarse), effective(wide)), 0.7);
}

torch::nn::Linear trained_linear(at::ScalarType type) {
  torch::nn::Linear linear(kIn, kOut);
  const at::NoGradGuard no_grad;
  linear->weight.copy_(decaying(kOut, kIn, 17));
  linear->bias.copy_(seeded_normal({kOut}, 18));
  linear->to(type);
  return linear;
}

TEST(FromLinear, keeps_type_bias_flags_and_approximates_the_outputs) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    torch::nn::Linear linear = trained_linear(type);
    linear->weight.set_requires_grad(false);
    linear->eval();
    FactoredLinear layer = from_linear(*linear, {.rank = 20});
    EXPECT_EQ(layer->first().scalar_type(), type);
    EXPECT_FALSE(layer->first().requires_grad());
    EXPECT_TRUE(layer->bias().requires_grad());
    EXPECT_FALSE(layer->is_training());
    const Tensor values = at::linalg_svdvals(decaying(kOut, kIn, 17));
    const double tail = (values.narrow(0, 20, kOut - 20).norm() / values.norm()).item<double>();
    EXPECT_NEAR(relative(layer->effective_weight(), linear->weight), tail,
                type == at::kBFloat16 ? 1e-2 : 1e-5);
    torch::nn::Linear dense = to_dense(*layer);
    const Tensor x = seeded_normal({5, kIn}, 19, type);
    EXPECT_LE(relative(dense->forward(x), layer->forward(x)), type == at::kBFloat16 ? 2e-2 : 1e-5);
    EXPECT_TRUE(at::equal(dense->bias, linear->bias));
  }
}

TEST(FromLinear, finds_the_rank_for_an_error_and_recompresses_to_one) {
  torch::nn::Linear linear = trained_linear(at::kDouble);
  FactoredLinear layer = from_linear(*linear, {.max_error = 0.1});
  EXPECT_LE(relative(layer->effective_weight(), linear->weight), 0.1);
  EXPECT_EQ(layer->options().rank, sketch::rank_for_error(linear->weight, 0.1));
  FactoredLinear sketched = from_linear(
      *linear, {.mode = FactorMode::Sketched, .fit = Fit::Projection, .rank = 40, .seed = 3});
  FactoredLinear small = recompress(*sketched, 0.2);
  EXPECT_EQ(small->options().mode, FactorMode::LowRank);
  EXPECT_LT(small->options().rank, 40);
  EXPECT_LE(relative(small->effective_weight(), sketched->effective_weight()), 0.2);
  EXPECT_TRUE(at::equal(small->bias(), linear->bias));
}

TEST(FromLinear, refits_the_bias_to_the_mean_of_the_outputs) {
  torch::nn::Linear linear = trained_linear(at::kDouble);
  const Tensor x = anisotropic_inputs();
  const auto moments = moments_of(x);
  for (const FactorMode mode : {FactorMode::LowRank, FactorMode::Sketched}) {
    FactoredLinear layer =
        from_linear(*linear, {.mode = mode, .fit = Fit::Activation, .rank = 4, .inputs = &moments});
    EXPECT_LE(relative(layer->forward(x).mean(0), linear->forward(x).mean(0)), 1e-10);
  }
}

TEST(FromLinear, starts_lower_by_svd_than_by_projection_and_by_random_copy) {
  torch::nn::Linear linear = trained_linear(at::kDouble);
  const auto error = [&](const FitOptions& options) {
    return relative(from_linear(*linear, options)->effective_weight(), linear->weight);
  };
  const double random = error({.mode = FactorMode::Sketched, .fit = Fit::Random, .rank = 16});
  const double projected =
      error({.mode = FactorMode::Sketched, .fit = Fit::Projection, .rank = 16});
  EXPECT_LT(error({.rank = 16}), projected);
  EXPECT_LT(projected, random);
  EXPECT_GT(random, 1);
}

TEST(FromLinear, refuses_fits_that_the_mode_does_not_have_and_weights_that_are_not_finite) {
  torch::nn::Linear linear = trained_linear(at::kFloat);
  const auto refused = [&](const FitOptions& options) {
    return refusal([&] { from_linear(*linear, options); });
  };
  EXPECT_THAT(refused({.mode = FactorMode::Sketched, .fit = Fit::Svd, .rank = 4}),
              HasSubstr("Fit::Svd, the default"));
  EXPECT_THAT(refused({.fit = Fit::Projection, .rank = 4}), HasSubstr("no fixed signs"));
  EXPECT_THAT(refused({.fit = Fit::Activation, .rank = 4}),
              HasSubstr("needs moments of the inputs"));
  EXPECT_THAT(refused({.mode = FactorMode::Sketched, .fit = Fit::Projection}),
              HasSubstr("A sketched layer needs a rank"));
  EXPECT_THAT(refused({.rank = -1}), HasSubstr("a rank of 1 to"));
  EXPECT_THAT(refused({.rank = Index{1} << 40}), HasSubstr("a rank of 1 to"));
  EXPECT_THAT(refused({.max_error = 1.5}), HasSubstr("a max_error in (0, 1), got 1.5"));
  EXPECT_THAT(refused({.max_error = -0.5}), HasSubstr("a max_error in (0, 1)"));
  EXPECT_THAT(refused({.rank = 4, .terms = 2}), HasSubstr("Only a sketched layer has terms."));
  EXPECT_THAT(refused({.mode = FactorMode::Sketched, .rank = 4}), HasSubstr("Fit::Projection"));
  EXPECT_THAT(refused({}), HasSubstr("needs a rank or a max_error"));
  EXPECT_THAT(refused({.rank = 4, .max_error = 0.1}), HasSubstr("either a rank or a max_error"));
  EXPECT_THAT(
      refused({.mode = FactorMode::Sketched, .fit = Fit::Projection, .rank = 4, .terms = 0}),
      HasSubstr("terms 0"));
  sketch::InputMoments narrow;
  narrow.add(at::ones({3, kIn - 1}));
  EXPECT_THAT(refused({.fit = Fit::Activation, .rank = 4, .inputs = &narrow}),
              HasSubstr("moments of"));
  const at::NoGradGuard no_grad;
  linear->bias[1] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refused({.rank = 4}), HasSubstr("The bias has NaN or infinity in it."));
  linear->weight[0][0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(refused({.rank = 4}).find("NaN"), std::string::npos);
}

TEST(InputMoments, refuses_what_would_spoil_them) {
  sketch::InputMoments moments;
  const Tensor good = at::ones({3, 5});
  moments.add(good);
  const Tensor second = moments.second.clone();
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Tensor x = good.clone();
    x[1][2] = bad;
    EXPECT_THAT(refusal([&] { moments.add(x); }), HasSubstr("NaN or infinity"));
  }
  EXPECT_THAT(refusal([&] { moments.add(Tensor()); }), HasSubstr("undefined"));
  EXPECT_EQ(moments.rows, 3);
  EXPECT_TRUE(moments.second.equal(second));
}

// The tutorial's grid has layers whose terms together are several times as wide as the weight.
TEST(FromLinear, terms_may_be_wider_together_than_the_weight_but_not_each) {
  const torch::nn::Linear linear = trained_linear(at::kFloat);
  const Index most = kIn + kOut;
  const FitOptions widest{
      .mode = FactorMode::Sketched, .fit = Fit::Projection, .rank = 3 * 2 * most, .terms = 3};
  EXPECT_EQ(from_linear(*linear, widest)->options().rank, 3 * 2 * most);
  FitOptions wider = widest;
  wider.rank += 6;
  EXPECT_THAT(refusal([&] { from_linear(*linear, wider); }), HasSubstr("a rank of 1 to 504, got"));
  const Index least = std::min(kIn, kOut);
  EXPECT_EQ(from_linear(*linear, {.rank = least})->options().rank, least);
  EXPECT_THAT(refusal([&] { from_linear(*linear, {.rank = least + 1}); }),
              HasSubstr("a rank of 1 to " + std::to_string(least) + ", got"));
}

}  // namespace
}  // namespace hone::nn
