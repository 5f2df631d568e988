// SPDX-License-Identifier: Apache-2.0
// Values worked out by hand, and loops over the definition with dense matrices.
#include "hone/train/paco/loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hone/train/paco/mining.h"
#include "tests/support/error_of.h"
#include "tests/train/paco/dense_oracle.h"

namespace hone::paco {
namespace {

using hone::test::error_of;
using test::dense_metric;
using test::labels;
using test::numbers;
using test::random;
using test::triplet_loss;
using test::TripletRules;
using test::worst;
using testing::HasSubstr;
using torch::Tensor;

constexpr auto kHardest = kernels::MineMode::Hardest;

// Two images of two parts in two dimensions. Cosine costs of image 0 are equal, so that its parts
// are matched in order.
struct TwoImages {
  Tensor z1 = numbers({1, 0, -1, 0, 4, 0, 2, 0}, {2, 2, 2}).requires_grad_();
  Tensor z2 = numbers({0, 1, 0, -1, 3, 1, 3, -1}, {2, 2, 2}).requires_grad_();
  Tensor targets = labels({0, 1});
};
PacoLossOptions two_images_options(double alpha, kernels::MineMode mining) {
  PacoLossOptions options{.classes = 2, .dim = 2, .alpha = alpha, .mining = mining};
  options.distance_scale = DistanceScale::None;
  options.metric = {.delta = DeltaMode::Absolute, .floor = 1};
  options.match = {MatchMetric::Cosine, 0};
  options.soc_epsilon = 0.5;
  return options;
}

TEST(PartContrast, takes_the_values_worked_out_by_hand) {
  const auto loss = [](double alpha, kernels::MineMode mining) {
    const TwoImages images;
    PacoLoss module(two_images_options(alpha, mining));
    return module->forward(images.z1, images.z2, images.targets).pac.item<double>();
  };
  EXPECT_NEAR(loss(1, kernels::MineMode::SemiHard), 0.209430585, 1e-9);
  EXPECT_NEAR(loss(1, kHardest), 0.646446609, 1e-9);
  EXPECT_EQ(loss(0.2, kernels::MineMode::SemiHard), 0);
}

TEST(PartContrast, has_the_gradients_worked_out_by_hand) {
  TwoImages images;
  PacoLoss hardest(two_images_options(1, kHardest));
  hardest->forward(images.z1, images.z2, images.targets).pac.backward();
  const Tensor by_z1 =
      numbers({.4914976, -.0937500, -.0129442, -.0312500, .0129442, .0312500, -.4914976, .0937500},
              {2, 2, 2});
  const Tensor by_z2 =
      numbers({-.09375, .09375, -.03125, .03125, .03125, -.03125, .09375, -.09375}, {2, 2, 2});
  EXPECT_LE((images.z1.grad() - by_z1).abs().max().item<double>(), 1e-7);
  EXPECT_LE((images.z2.grad() - by_z2).abs().max().item<double>(), 1e-7);
}

// If two negatives are equally near, the one with the lower row has the gradient.
TEST(PartContrast, gives_the_gradient_of_a_tie_to_the_lowest_row) {
  TwoImages images;
  PacoLoss module(two_images_options(1, kernels::MineMode::SemiHard));
  module->forward(images.z1, images.z2, images.targets).pac.backward();
  const Tensor want = numbers({.3309208, .0248354, -.0478069, -.0707785}, {2, 2});
  EXPECT_LE((images.z1.grad()[0] - want).abs().max().item<double>(), 1e-7);
}

struct Case {
  const char* name;
  MetricOptions metric;
  TripletRules rules;
  DistanceScale scale = DistanceScale::None;
};

std::vector<Case> all_cases() {
  return {{"absolute", {.delta = DeltaMode::Absolute, .floor = 0.02}, {.alpha = 50}},
          {"hardest", {.rho = 0.5}, {.alpha = 2, .semi_hard = false}, DistanceScale::SqrtDim},
          {"own images", {}, {.alpha = 1000, .mask_owner = false, .mask_class = false}},
          {"same class", {}, {.alpha = 3, .mask_class = false}},
          {"softplus", {.pooled = 0.4}, {.alpha = 0.2, .softplus = true}},
          {"shrink", {.delta = DeltaMode::Shrink, .floor = 0.01, .rho = 0.2}, {.alpha = 3}},
          {"screened", {}, {.alpha = 2, .top_m = 3}}};
}

PacoLossOptions options_of(const Case& one, Index dim) {
  PacoLossOptions options{.classes = 3, .dim = dim, .alpha = one.rules.alpha};
  options.mining = one.rules.semi_hard ? kernels::MineMode::SemiHard : kHardest;
  options.screen_top_m = one.rules.top_m;
  options.mask_owner = one.rules.mask_owner;
  options.mask_class = one.rules.mask_class;
  options.hinge = one.rules.softplus ? Hinge::Softplus : Hinge::Relu;
  options.distance_scale = one.scale;
  options.metric = one.metric;
  options.match = {MatchMetric::Mahalanobis, 0};
  return options;
}

TEST(PartContrast, and_its_gradient_are_those_of_loops_over_dense_matrices) {
  at::manual_seed(11);
  for (const Case& one : all_cases()) {
    for (const Index parts : {1, 3}) {
      if (parts == 1 && one.metric.pooled > 0) continue;
      const Index dim = 5;
      const Tensor z1 = random({4, parts, dim}).requires_grad_();
      const Tensor z2 = random({4, parts, dim}).requires_grad_();
      const Tensor targets = labels({0, 1, 2, 1});
      PacoLoss module(options_of(one, dim));
      const PacoLossOutput out = module->forward(z1, z2, targets);
      out.pac.backward();
      const Tensor by_z1 = z1.grad().clone(), by_z2 = z2.grad().clone();
      z1.mutable_grad() = Tensor();
      z2.mutable_grad() = Tensor();
      TripletRules rules = one.rules;
      if (one.scale == DistanceScale::SqrtDim)
        rules.scale = 1 / std::sqrt(static_cast<double>(dim));
      const Tensor want =
          triplet_loss(dense_metric(z1, z2, one.metric), z1, z2, targets, out.matching, rules);
      want.backward();
      EXPECT_GT(want.item<double>(), 0) << one.name;
      EXPECT_LE(worst(out.pac, want), 1e-10) << one.name << " " << parts;
      EXPECT_LE(worst(by_z1, z1.grad()), 1e-8) << one.name << " " << parts;
      EXPECT_LE(worst(by_z2, z2.grad()), 1e-8) << one.name << " " << parts;
    }
  }
}

TEST(Mining, by_operators_finds_what_the_kernel_finds) {
  at::manual_seed(12);
  for (const bool hardest : {false, true}) {
    for (const int masks : {0, 1, 2, 3}) {
      const Tensor z1 = random({6, 4, 8}), z2 = random({6, 4, 8});
      const PartMetric metric = part_metric(z1, z2, {});
      const Tensor q = ridge_distance_sq(metric, metric.z1 - metric.z2);
      const MiningOptions options{.mode = hardest ? kHardest : kernels::MineMode::SemiHard,
                                  .mask_owner = (masks & 1) != 0,
                                  .mask_class = (masks & 2) != 0,
                                  .draws_images = masks == 1};
      const Tensor targets = labels({0, 1, 2, 0, 1, 2}), images = labels({1, 2, 3, 4, 5, 0});
      const MinedNegatives kernel = mine_negatives(metric, q, targets, images, options);
      const MinedNegatives operators =
          composed::mine_negatives(metric, q, targets, images, options);
      EXPECT_TRUE(kernel.row.equal(operators.row)) << hardest << masks;
      EXPECT_TRUE(kernel.found.equal(operators.found)) << hardest << masks;
      EXPECT_TRUE(kernel.found.all().item<bool>());
      const Tensor owner = kernel.row.div(4, "floor").remainder(6);
      const Tensor own = at::arange(6, at::kLong).unsqueeze(1);
      if ((masks & 1) != 0) {
        EXPECT_FALSE((owner == own).any().item<bool>());
      }
      if ((masks & 2) != 0) {
        const Tensor label = targets.index_select(0, owner.flatten()).reshape_as(owner);
        EXPECT_FALSE((label == targets.unsqueeze(1)).any().item<bool>());
      }
    }
  }
}

TEST(Mining, draws_another_image_for_each) {
  at::manual_seed(13);
  const Tensor z1 = random({5, 2, 4}), z2 = random({5, 2, 4});
  const PartMetric metric = part_metric(z1, z2, {});
  const Tensor q = ridge_distance_sq(metric, metric.z1 - metric.z2);
  const MiningOptions options{.mask_owner = true, .mask_class = false, .draws_images = true};
  at::manual_seed(1);
  const Tensor once = mine_negatives(metric, q, labels({0, 0, 0, 0, 0}), {}, options).row;
  at::manual_seed(1);
  EXPECT_TRUE(mine_negatives(metric, q, labels({0, 0, 0, 0, 0}), {}, options).row.equal(once));
  const auto mined = [&](const PartMetric& of, const Tensor& to, bool draws) {
    MiningOptions drawing = options;
    drawing.draws_images = draws;
    return mine_negatives(of, to, at::zeros({of.z1.size(0)}, at::kLong), {}, drawing);
  };
  const PartMetric two = part_metric(z1.narrow(0, 0, 2), z2.narrow(0, 0, 2), {});
  const Tensor of_two = ridge_distance_sq(two, two.z1 - two.z2);
  bool varies = false;
  for (int seed = 0; seed < 20; ++seed) {
    at::manual_seed(seed);
    varies = varies || !mined(metric, q, true).row.equal(mined(metric, q, false).row);
    const MinedNegatives other = mined(two, of_two, true);  // of two, each can draw only the other
    EXPECT_TRUE(other.found.all().item<bool>());
    EXPECT_TRUE(other.row.equal(mined(two, of_two, false).row));
  }
  EXPECT_TRUE(varies);
}

TEST(PartContrast, does_not_change_when_parts_are_scaled) {
  at::manual_seed(14);
  const Tensor z1 = random({4, 4, 16}).requires_grad_(), z2 = random({4, 4, 16}).requires_grad_();
  PacoLossOptions options{.classes = 4, .dim = 16, .alpha = 2};
  options.metric = {.delta = DeltaMode::Relative, .floor = 1e-12};
  PacoLoss module(options);
  const Tensor targets = labels({0, 1, 2, 3});
  const Tensor loss = module->forward(z1, z2, targets).pac;
  loss.backward();
  EXPECT_LE(worst(module->forward(7 * z1, 7 * z2, targets).pac, loss), 1e-12);
  const Tensor products = at::cat({z1 * z1.grad(), z2 * z2.grad()}).detach();
  EXPECT_GT(loss.item<double>(), 0);
  EXPECT_LE(std::abs(products.sum().item<double>()), 1e-10 * products.abs().sum().item<double>());
}

TEST(SecondOrderAlignment, takes_the_values_worked_out_by_hand) {
  for (const auto& [init, want] :
       {std::pair{PrototypeInit::Identity, 8.025}, std::pair{PrototypeInit::Skip, 8.0}}) {
    const Tensor z1 = numbers({1, 0, -1, 0}, {1, 2, 2}), z2 = numbers({0, 1, 0, -1}, {1, 2, 2});
    PacoLossOptions options = two_images_options(1, kHardest);
    options.prototype_init = init;
    options.soc_scale = SocScale::None;
    PacoLoss module(options);
    EXPECT_NEAR(module->forward(z1, z2, labels({0})).soc.item<double>(), want, 1e-12);
  }
}

TEST(SecondOrderAlignment, of_one_dimension_is_a_polynomial) {
  const double a = 1.5, b = 0.5;
  const Tensor z1 = numbers({a, -a}, {1, 2, 1}).requires_grad_(), z2 = numbers({b, -b}, {1, 2, 1});
  PacoLossOptions options{.classes = 1, .dim = 1};
  options.soc_scale = SocScale::None;
  PacoLoss module(options);
  const Tensor soc = module->forward(z1, z2, labels({0})).soc;
  EXPECT_NEAR(soc.item<double>(), 4 * std::pow(a * a - b * b, 2), 1e-12);
  soc.backward();
  const Tensor along_a = z1.grad()[0][0][0] - z1.grad()[0][1][0];
  EXPECT_NEAR(along_a.item<double>(), 16 * a * (a * a - b * b), 1e-11);
}

// With ε = 0.25 the covariances are [[4.25, 1], [1, 1.25]] and [[1.25, 0.5], [0.5, 7.25]], whose
// squared distance is 45.5 and whose traces are 5.5 and 8.5; against the identity, their mean
// [[2.75, 0.75], [0.75, 4.25]] has 14.75 and trace 7 (to 2).
TEST(SecondOrderAlignment, is_relative_to_the_traces_of_both_covariances) {
  const Tensor z1 = numbers({1, 2, -1, 0, 3, 1}, {1, 3, 2});
  const Tensor z2 = numbers({0, 1, 2, 2, 1, -3}, {1, 3, 2});
  PacoLossOptions options{.classes = 1, .dim = 2};
  options.soc_epsilon = 0.25;
  options.beta = 0.5;
  for (const Prototypes kind : {Prototypes::Full, Prototypes::Diagonal}) {
    options.prototypes = kind;
    options.prototype_init = PrototypeInit::Identity;
    const double off_diagonal = kind == Prototypes::Full ? 2 * 0.75 * 0.75 : 0;
    const double to_class = 1.75 * 1.75 + 3.25 * 3.25 + off_diagonal;
    PacoLoss module(options);
    EXPECT_NEAR(module->forward(z1, z2, labels({0})).soc.item<double>(),
                45.5 / 49 + 0.5 * to_class / (4.5 * 4.5), 1e-12);
  }
}

TEST(SecondOrderAlignment, does_not_change_when_parts_are_scaled) {
  at::manual_seed(5);
  PacoLossOptions options{.classes = 4, .dim = 6};
  options.soc_epsilon = 1e-14;
  options.prototypes = Prototypes::Off;
  const Tensor z1 = at::randn({4, 4, 6}, at::kDouble).requires_grad_();
  const Tensor z2 = at::randn({4, 4, 6}, at::kDouble).requires_grad_();
  PacoLoss module(options);
  const Tensor loss = module->forward(z1, z2, labels({0, 1, 2, 3})).soc;
  loss.backward();
  EXPECT_LE(worst(module->forward(7 * z1, 7 * z2, labels({0, 1, 2, 3})).soc, loss), 1e-11);
  const Tensor products = at::cat({z1 * z1.grad(), z2 * z2.grad()}).detach();
  EXPECT_GT(loss.item<double>(), 0);
  EXPECT_LE(loss.item<double>(), 4);
  EXPECT_LE(std::abs(products.sum().item<double>()), 1e-10 * products.abs().sum().item<double>());
}

TEST(PacoLoss, matches_with_a_floor_of_its_own) {
  at::manual_seed(6);
  const Tensor z1 = at::randn({32, 4, 6}, at::kDouble);
  const Tensor z2 = z1 + at::randn({32, 4, 6}, at::kDouble);
  const Tensor targets = at::arange(32, at::kLong);
  PacoLossOptions options{.classes = 32, .dim = 6};
  options.match.warmup_epochs = 0;
  options.metric = {.delta = DeltaMode::Absolute, .floor = 1e-3};
  const PacoLossOutput plain = PacoLoss(options)->forward(z1, z2, targets);
  options.match_floor = 10;
  const PacoLossOutput apart = PacoLoss(options)->forward(z1, z2, targets);
  options.match_floor = 0;
  options.metric.floor = 10;
  const PacoLossOutput large = PacoLoss(options)->forward(z1, z2, targets);
  EXPECT_TRUE(apart.matching.equal(large.matching));
  EXPECT_FALSE(apart.matching.equal(plain.matching));
  EXPECT_TRUE(apart.delta.equal(plain.delta));
}

TEST(Prototypes, are_moving_averages_in_the_order_of_the_batch) {
  PacoLossOptions options{.classes = 2, .dim = 1};
  options.soc_epsilon = 1e-9;
  PacoLoss module(options);
  // Parts ±s in one dimension have variance 2 s².
  const auto parts = [](const std::vector<double>& variances) {
    std::vector<double> values;
    for (const double v : variances) {
      values.push_back(std::sqrt(v / 2));
      values.push_back(-std::sqrt(v / 2));
    }
    return numbers(values, {static_cast<Index>(variances.size()), 2, 1});
  };
  const Tensor first = parts({1, 2}), second = parts({3});
  module->forward(first, first, labels({1, 1}));
  EXPECT_NEAR(module->prototype[1].item<double>(), 1.1, 1e-6);
  EXPECT_TRUE(module->prototype_count.equal(labels({0, 2})));
  module->forward(second, second, labels({1}));
  EXPECT_NEAR(module->prototype[1].item<double>(), 1.29, 1e-6);
  module->eval();
  module->forward(second, second, labels({1}));
  EXPECT_TRUE(module->prototype_count.equal(labels({0, 3})));
}

TEST(PacoLoss, switches_from_cosine_at_the_end_of_the_warm_up) {
  at::manual_seed(16);
  const Tensor z1 = random({32, 4, 8}), z2 = random({32, 4, 8});
  const Tensor targets = at::arange(32, at::kLong);
  PacoLossOptions options{.classes = 32, .dim = 8};
  options.match = {MatchMetric::Mahalanobis, 3};
  PacoLoss module(options);
  const Tensor cosine = match_parts(cosine_costs(z1, z2), options.solver);
  for (const Index epoch : {0, 2, 3, 50}) {
    module->set_epoch(epoch);
    EXPECT_EQ(module->forward(z1, z2, targets).matching.equal(cosine), epoch < 3) << epoch;
  }
}

TEST(PacoLoss, matches_parts_by_the_distances_of_dense_matrices) {
  at::manual_seed(19);
  for (const auto& [parts, pooled] : {std::pair<Index, double>{1, 0}, {4, 0}, {4, 0.4}, {9, 0}}) {
    // A large common mean must not cost digits.
    const Tensor z1 = random({6, parts, 12}) + 1e4, z2 = random({6, parts, 12}) + 1e4;
    PacoLossOptions options{.classes = 6, .dim = 12};
    options.match = {MatchMetric::Mahalanobis, 0};
    options.metric.pooled = pooled;
    PacoLoss module(options);
    const Tensor got = module->forward(z1, z2, at::arange(6, at::kLong)).matching;
    const auto dense = dense_metric(z1, z2, options.metric);
    const Tensor costs = at::empty({6, parts, parts}, at::kDouble);
    for (Index b = 0; b < 6; ++b) {
      const Tensor& sigma = dense.sigma[static_cast<std::size_t>(b)];
      for (Index k = 0; k < parts; ++k) {
        for (Index j = 0; j < parts; ++j) {
          costs[b][k][j] = test::distance_sq(sigma, z1[b][k] - z2[b][j]).sqrt();
        }
      }
    }
    EXPECT_TRUE(got.equal(match_parts(costs, options.solver))) << parts << " " << pooled;
  }
}

TEST(PacoLoss, finds_permuted_parts_again_by_the_metric) {
  at::manual_seed(20);
  const Tensor z1 = random({3, 6, 16}), order = at::randperm(6, at::kLong);
  const Tensor back = order.argsort().expand({3, 6});
  PacoLossOptions options{.classes = 3, .dim = 16};
  options.match = {MatchMetric::Mahalanobis, 0};
  PacoLoss module(options);
  const auto out = module->forward(z1, z1.index_select(1, order), labels({0, 1, 2}));
  EXPECT_TRUE(out.matching.equal(back));
  const Tensor twice = z1.slice(1, 0, 1).expand({3, 6, 16});  // all distances are 0
  EXPECT_TRUE(module->forward(twice, twice, labels({0, 1, 2}))
                  .matching.equal(at::arange(6, at::kLong).expand({3, 6})));
}

TEST(PacoLoss, is_finite_where_parts_coincide_or_nothing_is_a_negative) {
  at::manual_seed(17);
  const Tensor some = random({3, 4, 6});
  struct Input {
    Tensor z1, z2;
    Tensor targets;
  };
  const Tensor one = some.slice(0, 0, 1), same = some.slice(1, 0, 1).expand({3, 4, 6});
  for (const Input& input :
       {Input{at::zeros_like(some), at::zeros_like(some), labels({0, 1, 2})},
        Input{some, some, labels({0, 1, 2})}, Input{same, same, labels({0, 1, 2})},
        Input{some, some.flip(0), labels({1, 1, 1})}, Input{one, one.flip(1), labels({0})},
        Input{some.slice(1, 0, 1), some.slice(1, 1, 2), labels({0, 1, 2})}}) {
    for (const SocMetric metric :
         {SocMetric::Frobenius, SocMetric::Stein, SocMetric::LogEuclidean}) {
      const Tensor z1 = input.z1.clone().requires_grad_(), z2 = input.z2.clone().requires_grad_();
      PacoLossOptions options{.classes = 3, .dim = 6, .soc_metric = metric};
      options.soc_epsilon = 1e-3;
      PacoLoss module(options);
      for (int twice = 0; twice < 2; ++twice) {  // the second time with prototypes
        const PacoLossOutput out = module->forward(z1, z2, input.targets);
        (out.pac + out.soc).backward();
        EXPECT_TRUE(at::isfinite(out.pac + out.soc).item<bool>());
        EXPECT_TRUE(at::isfinite(z1.grad()).all().item<bool>());
        EXPECT_TRUE(at::isfinite(z2.grad()).all().item<bool>());
      }
    }
  }
  PacoLoss module(PacoLossOptions{.classes = 3, .dim = 6});
  const PacoLossOutput none = module->forward(some, some.flip(0), labels({1, 1, 1}));
  EXPECT_EQ(none.pac.item<double>(), 0);
  EXPECT_EQ(none.empty_share.item<double>(), 1);
  EXPECT_EQ(none.active_share.item<double>(), 0);
}

TEST(PacoLoss, selects_without_gradient_and_keeps_the_types_of_parts) {
  at::manual_seed(18);
  const Tensor z1 = at::randn({4, 4, 8}).requires_grad_(), z2 = at::randn({4, 4, 8});
  PacoLoss module(PacoLossOptions{.classes = 4, .dim = 8, .alpha = 2});
  const PacoLossOutput out = module->forward(z1, z2, at::arange(4, at::kLong));
  for (const Tensor& made : {out.matching, out.active_share, out.empty_share, out.delta}) {
    EXPECT_FALSE(made.requires_grad());
  }
  EXPECT_FALSE(module->prototype.requires_grad());
  out.pac.backward();
  EXPECT_EQ(z1.grad().scalar_type(), at::kFloat);
}

TEST(PacoLoss, refuses_by_name) {
  PacoLoss module(PacoLossOptions{.classes = 3, .dim = 6});
  const Tensor z = random({2, 4, 6});
  const auto refused = [&](const Tensor& parts, const Tensor& targets) {
    return error_of([&] { module->forward(parts, parts, targets); });
  };
  EXPECT_THAT(refused(random({2, 4, 5}), labels({0, 1})), HasSubstr("parts of dim 6, got 5"));
  EXPECT_THAT(refused(z, labels({0})), HasSubstr("2 int64 targets"));
  EXPECT_THAT(refused(z, labels({0, 3})), HasSubstr("targets below 3, got 3"));
  EXPECT_THAT(refused(z, labels({0, -1})), HasSubstr("targets of at least 0, got -1"));
  EXPECT_THAT(refused(z, Tensor()), HasSubstr("2 int64 targets, got none"));
  EXPECT_THAT(refused(z.slice(0, 0, 0), labels({})), HasSubstr("at least one image"));
  const auto unfit = [](const PacoLossOptions& options) {
    return error_of([&] { PacoLoss made(options); });
  };
  EXPECT_THAT(unfit({}), HasSubstr("classes above 0"));
  EXPECT_THAT(unfit({.classes = 1}), HasSubstr("dim above 0"));
  EXPECT_THAT(unfit({.classes = 1, .dim = 1, .alpha = -1}), HasSubstr("alpha"));
  EXPECT_THAT(unfit({.classes = 1, .dim = 1, .prototype_momentum = 2}),
              HasSubstr("prototype_momentum in [0, 1]"));
}

TEST(WeightedCrossEntropy, takes_the_values_worked_out_by_hand) {
  const Tensor logits = at::zeros({2, 2}, at::kDouble), targets = labels({0, 1});
  const Tensor weight = numbers({1, 3}, {2}).requires_grad_();
  const auto loss = [&](CeWeight kind) {
    return weighted_cross_entropy(logits, targets, weight, {kind, 0.1, 0});
  };
  EXPECT_NEAR(loss(CeWeight::Attached).item<double>(), 1.1 * std::log(2.0), 1e-12);
  EXPECT_NEAR(loss(CeWeight::Detached).item<double>(), std::log(2.0), 1e-12);
  EXPECT_NEAR(loss(CeWeight::Off).item<double>(), std::log(2.0), 1e-12);
  EXPECT_FALSE(loss(CeWeight::Detached).requires_grad());
  loss(CeWeight::Attached).backward();
  EXPECT_GT(weight.grad().abs().max().item<double>(), 0);
}

// Exchanging the weights of two images changes the loss, unless only the mean counts.
TEST(WeightedCrossEntropy, weighs_each_image) {
  const Tensor logits = numbers({2, 0, 0.5, 0}, {2, 2}), targets = labels({0, 1});
  const Tensor weight = numbers({1, 3}, {2});
  const auto change = [&](CeWeight kind) {
    const WeightedCeOptions options{kind, 0.5, 0.1};
    return (weighted_cross_entropy(logits, targets, weight, options) -
            weighted_cross_entropy(logits, targets, weight.flip(0), options))
        .abs()
        .item<double>();
  };
  EXPECT_GT(change(CeWeight::Detached), 0.1);
  EXPECT_EQ(change(CeWeight::Attached), 0);
  EXPECT_EQ(change(CeWeight::Off), 0);
}

}  // namespace
}  // namespace hone::paco
