// SPDX-License-Identifier: Apache-2.0
// What the losses are where all features are equal, and that shrinking features gains nothing.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "hone/train/paco/loss.h"
#include "hone/train/paco/sampler.h"

namespace hone::paco {
namespace {

using torch::Tensor;

constexpr Index kClasses = 80, kDim = 32;
constexpr double kEpsilon = 0.01, kLambda = 0.3, kEta = 0.1;

Tensor labels() { return at::arange(4, at::kLong) * 7; }

// The options of the published code but for those that do not matter here.
PacoLossOptions published_options(PrototypeInit init) {
  PacoLossOptions options{.classes = kClasses, .dim = kDim, .alpha = 0.2};
  options.mask_owner = options.mask_class = false;
  options.distance_scale = DistanceScale::None;
  options.pool = NegativePool::OneImage;
  options.metric = {.delta = DeltaMode::Absolute, .floor = 1e-5};
  options.match = {MatchMetric::Cosine, 0};
  options.soc_scale = SocScale::None;
  options.soc_epsilon = kEpsilon;
  options.prototype_init = init;
  return options;
}

// A network whose features and logits are zero: its loss with the published weights.
double collapsed_loss(PacoLoss losses, CeWeight weight) {
  const SampledParts parts = sample_parts(at::zeros({4, 16, 7, 7}, at::kDouble), {});
  const Tensor z = at::linear(parts.parts, at::ones({kDim, 16}, at::kDouble));
  const PacoLossOutput out = losses->forward(z, z, labels());
  EXPECT_EQ(out.active_share.item<double>(), 1);
  EXPECT_NEAR(out.pac.item<double>(), 0.2, 1e-15) << "the margin";
  const Tensor ce = weighted_cross_entropy(at::zeros({4, kClasses}, at::kDouble), labels(),
                                           parts.weight, {.weight = weight, .gamma = 0.1});
  return (ce + kLambda * out.pac + kEta * out.soc).item<double>();
}

TEST(CollapsedFeatures, cost_a_uniform_guess_and_the_margin) {
  const double guess = std::log(80.0);
  EXPECT_NEAR(guess, 4.3820266, 5e-8);
  PacoLoss losses(published_options(PrototypeInit::Skip));
  for (const int visit : {1, 2}) {  // without a prototype, then with ε I
    EXPECT_NEAR(collapsed_loss(losses, CeWeight::Attached), 4.0038240, 5e-8) << visit;
  }
  EXPECT_NEAR(collapsed_loss(losses, CeWeight::Off), guess + kLambda * 0.2, 1e-12);
  // A prototype that is the identity before the first visit pulls covariances to scale 1.
  PacoLoss pulled(published_options(PrototypeInit::Identity));
  EXPECT_NEAR(collapsed_loss(pulled, CeWeight::Attached), 4.0038240 + kEta * 1.568160, 5e-8);
}

TEST(CollapsedFeatures, have_finite_gradients_through_sampler_and_losses) {
  at::manual_seed(1);
  const Tensor some = at::randn({1, 8, 7, 7}).expand({3, 8, 7, 7});
  for (const auto& [map, parts] : {std::pair<Tensor, Index>{at::zeros({3, 8, 7, 7}), 4},
                                   {at::ones({3, 8, 7, 7}), 1},
                                   {some, 1},
                                   {some, 4},
                                   {at::randn({1, 8, 2, 2}), 4},
                                   {at::randn({3, 8, 7, 7}), 4}}) {
    const Tensor features = map.clone().requires_grad_();
    const Tensor weight = at::randn({6, 8}).requires_grad_();
    // The window suppresses all of a small map, so that peaks repeat.
    const SamplerOptions sampler{.parts = parts, .window = 15, .allow_repeats = true};
    const SampledParts sampled = sample_parts(features, sampler);
    const Tensor z = at::linear(sampled.parts, weight);
    const Tensor targets = at::zeros({features.size(0)}, at::kLong);  // one class
    PacoLossOptions options{.classes = 2, .dim = 6};
    options.mask_class = false;
    PacoLoss losses(options);
    const PacoLossOutput out = losses->forward(z, z, targets);
    const Tensor logits = at::linear(features.mean({2, 3}), at::ones({2, 8}));
    for (const CeWeight kind : {CeWeight::Detached, CeWeight::Attached}) {
      const Tensor ce = weighted_cross_entropy(logits, targets, sampled.weight, {.weight = kind});
      const Tensor total = ce + out.pac + out.soc;
      EXPECT_TRUE(at::isfinite(total).item<bool>());
      total.backward({}, /*retain_graph=*/true);
      EXPECT_TRUE(at::isfinite(features.grad()).all().item<bool>());
      EXPECT_TRUE(at::isfinite(weight.grad()).all().item<bool>());
    }
  }
}

// Weights are the norms of features: a network that made them smaller would lower the loss.
TEST(WeightedCrossEntropy, falls_with_the_scale_of_attached_weights_only) {
  at::manual_seed(2);
  const Tensor logits = at::randn({5, 3}, at::kDouble);
  const Tensor targets = at::tensor({0, 1, 2, 0, 1}, at::kLong);
  const Tensor weight = at::rand({5}, at::kDouble) + 14;
  const auto loss = [&](CeWeight kind, double scale) {
    return weighted_cross_entropy(logits, targets, scale * weight, {.weight = kind}).item<double>();
  };
  for (const double scale : {0.5, 0.01, 1e-6}) {
    EXPECT_NEAR(loss(CeWeight::Detached, scale), loss(CeWeight::Detached, 1), 1e-12);
    EXPECT_LT(loss(CeWeight::Attached, scale), 0.8 * loss(CeWeight::Attached, 1));
  }
}

}  // namespace
}  // namespace hone::paco
