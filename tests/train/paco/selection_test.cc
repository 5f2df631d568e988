// SPDX-License-Identifier: Apache-2.0
// Which rows of the pool are reached, at which distances, and that threads and autocast change no
// bit.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hone/train/amp/autocast_guard.h"
#include "hone/train/paco/loss.h"
#include "hone/train/paco/mining.h"
#include "tests/train/paco/dense_oracle.h"

namespace hone::paco {
namespace {

using test::numbers;
using torch::Tensor;

// Parts ±e_1 and ±e_2 of the two views: the mean covariance is I without what is added to it.
const Tensor& cross(int view) {
  static const Tensor parts[2] = {numbers({1, 0, -1, 0}, {1, 2, 2}),
                                  numbers({0, 1, 0, -1}, {1, 2, 2})};
  return parts[view];
}

TEST(PartMetric, of_crossed_pairs_is_euclidean) {
  const Tensor x = cross(0) - cross(1);
  for (const double share : {0.25, 1.0, 4.0}) {
    const double want = std::sqrt(2 / (1 + share));
    for (const MetricOptions& options :
         {MetricOptions{.delta = DeltaMode::Relative, .rho = share},
          MetricOptions{.delta = DeltaMode::Absolute, .floor = share}}) {
      const PartMetric metric = part_metric(cross(0), cross(1), options);
      const Tensor d = root_of(ridge_distance_sq(metric, x));
      EXPECT_NEAR(d[0][0].item<double>(), want, 1e-14) << share;
      EXPECT_NEAR(d[0][1].item<double>(), want, 1e-14) << share;
    }
  }
}

TEST(PartContrast, has_the_distances_worked_out_by_hand) {
  const Tensor z1 = at::cat({cross(0), numbers({4, 0, 2, 0}, {1, 2, 2})});
  const Tensor z2 = at::cat({cross(1), numbers({3, 1, 3, -1}, {1, 2, 2})});
  const PartMetric metric = part_metric(z1, z2, {.delta = DeltaMode::Absolute, .floor = 1});
  const Tensor positive = root_of(ridge_distance_sq(metric, z1 - z2));
  EXPECT_LE((positive - 1).abs().max().item<double>(), 1e-14);
  // From the part (1, 0) to the parts of the other image.
  const Tensor other = at::cat({z1[1], z2[1]}).unsqueeze(0).expand({2, 4, 2});
  const Tensor d = root_of(ridge_distance_sq(metric, z1[0][0] - other))[0];
  const Tensor want = numbers({2.121320, .707107, 1.581139, 1.581139}, {4});
  EXPECT_LE((d - want).abs().max().item<double>(), 5e-7);
}

// A part that is where another one lies has that one as its nearest, whichever it is.
TEST(Mining, reaches_every_part_of_both_views_of_other_images_once) {
  at::manual_seed(1);
  const Index batch = 4, parts = 3;
  const MiningOptions options{
      .mode = kernels::MineMode::Hardest, .mask_owner = true, .mask_class = false};
  const Tensor targets = at::zeros({batch}, at::kLong);
  const Tensor start = at::randn({batch, parts, 7}, at::kDouble);
  const Tensor z2 = at::randn({batch, parts, 7}, at::kDouble);
  for (Index row = 0; row < 2 * batch * parts; ++row) {
    const Index owner = row / parts % batch, anchor = (owner + 1) % batch;
    const Tensor z1 = start.clone();
    const Tensor pool = at::cat({z1.flatten(0, 1), z2.flatten(0, 1)});
    z1[anchor][1].copy_(pool[row]);
    const PartMetric metric = part_metric(z1, z2, {});
    const Tensor q = ridge_distance_sq(metric, z1 - z2);
    for (const auto& mine : {mine_negatives, composed::mine_negatives}) {
      const MinedNegatives mined = mine(metric, q, targets, {}, options);
      EXPECT_EQ(mined.row[anchor][1].item<Index>(), row);
      EXPECT_TRUE(mined.found.all().item<bool>());
    }
  }
}

// Forward and backward passes: the two losses, the matching and the gradients.
std::vector<Tensor> everything(const PacoLossOptions& options, const Tensor& start1,
                               const Tensor& start2) {
  const Tensor z1 = start1.clone().requires_grad_(), z2 = start2.clone().requires_grad_();
  const Tensor targets = at::arange(z1.size(0), at::kLong).remainder(options.classes);
  PacoLoss losses(options);
  losses->forward(z1.detach(), z2.detach(), targets);  // prototypes for what follows
  const PacoLossOutput out = losses->forward(z1, z2, targets);
  (out.pac + out.soc).backward();
  return {out.pac.detach(), out.soc.detach(), out.matching,     out.delta,
          z1.grad(),        z2.grad(),        losses->prototype};
}

std::vector<PacoLossOptions> various_options() {
  PacoLossOptions plain{.classes = 5, .dim = 24, .alpha = 2};
  plain.match = {MatchMetric::Mahalanobis, 0};
  PacoLossOptions pooled = plain, stein = plain;
  pooled.metric.pooled = 0.3;
  pooled.hinge = Hinge::Softplus;
  pooled.match = {MatchMetric::Cosine, 0};
  stein.soc_metric = SocMetric::Stein;
  stein.prototypes = Prototypes::Diagonal;
  stein.soc_epsilon = 0.1;
  return {plain, pooled, stein};
}

TEST(PacoLoss, has_the_same_bits_for_any_number_of_threads) {
  at::manual_seed(2);
  const Tensor z1 = at::randn({16, 4, 24}), z2 = at::randn({16, 4, 24});
  const int before = at::get_num_threads();
  for (const PacoLossOptions& options : various_options()) {
    if (options.metric.pooled > 0) continue;  // by LibTorch's products and factorizations
    at::set_num_threads(1);
    const auto one = everything(options, z1, z2);
    at::set_num_threads(7);
    const auto seven = everything(options, z1, z2);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(seven[i])) << i;
  }
  at::set_num_threads(before);
}

TEST(PacoLoss, has_the_same_bits_inside_autocast) {
  at::manual_seed(3);
  const Tensor z1 = at::randn({6, 4, 24}), z2 = at::randn({6, 4, 24});
  for (const PacoLossOptions& options : various_options()) {
    const auto plain = everything(options, z1, z2);
    const amp::AutocastGuard autocast(at::kCPU, at::kBFloat16);
    const auto cast = everything(options, z1, z2);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(plain[i].equal(cast[i])) << i;
  }
}

}  // namespace
}  // namespace hone::paco
