// SPDX-License-Identifier: Apache-2.0
// Parts that coincide under pooled metrics, parts that are not finite, and many classes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/train/memory/memory_meter.h"
#include "hone/train/paco/loss.h"
#include "tests/train/paco/dense_oracle.h"

namespace hone::paco {
namespace {

using test::covariance;
using test::dense_metric;
using test::diagonal_of;
using test::labels;
using test::random;
using test::triplet_loss;
using test::worst;
using torch::Tensor;

bool is_finite(const Tensor& value) { return at::isfinite(value).all().item<bool>(); }
bool is_nan(const Tensor& value) { return at::isnan(value).all().item<bool>(); }

// Without variance in the batch, its mean covariance is floor I, and the squared distance of two
// parts is that of their coordinates / (pooled floor).
TEST(PartContrast, by_pooled_metrics_is_bounded_where_parts_coincide) {
  const Index dim = 5;
  const Tensor targets = labels({0, 1, 2, 1});
  for (const double noise : {0.0, 1e-6}) {
    at::manual_seed(21);
    const Tensor a = random({4, 1, dim}), b = random({4, 1, dim});
    const Tensor z1 = (a + noise * random({4, 3, dim})).requires_grad_();
    const Tensor z2 = (b + noise * random({4, 3, dim})).requires_grad_();
    PacoLossOptions options{.classes = 3, .dim = dim, .mining = kernels::MineMode::Hardest};
    options.hinge = Hinge::Softplus;
    options.metric.pooled = 0.5;
    options.match = {MatchMetric::Mahalanobis, 0};
    const PacoLossOutput out = PacoLoss(options)->forward(z1, z2, targets);
    out.pac.backward();
    const Tensor by_z1 = z1.grad().clone(), by_z2 = z2.grad().clone();
    EXPECT_TRUE(is_finite(by_z1) && is_finite(by_z2));
    z1.mutable_grad() = Tensor();
    z2.mutable_grad() = Tensor();
    const double scale = 1 / std::sqrt(static_cast<double>(dim));
    const Tensor want =
        triplet_loss(dense_metric(z1, z2, options.metric), z1, z2, targets, out.matching,
                     {.scale = scale, .semi_hard = false, .softplus = true});
    want.backward();
    EXPECT_LE(worst(out.pac, want), 1e-8) << noise;
    // If parts are equal, any of them may be the negative.
    const auto of_image = [&](const Tensor& grad) { return noise == 0 ? grad.sum(1) : grad; };
    EXPECT_LE(worst(of_image(by_z1), of_image(z1.grad())), 1e-6) << noise;
    EXPECT_LE(worst(of_image(by_z2), of_image(z2.grad())), 1e-6) << noise;
    const double longest = (a - b).square().sum(2).max().sqrt().item<double>();
    EXPECT_GT(want.item<double>(), 0);
    EXPECT_LE(out.pac.item<double>(), 1 + 1.01 * longest * scale / std::sqrt(0.5 * 2e-5)) << noise;
  }
}

std::vector<PacoLossOptions> limit_options() {
  PacoLossOptions plain{.classes = 3, .dim = 6}, pooled = plain, stein = plain, logs = plain;
  plain.match = {MatchMetric::Mahalanobis, 0};
  pooled.metric.pooled = 0.5;
  stein.soc_metric = SocMetric::Stein;
  stein.metric.delta = DeltaMode::Shrink;
  stein.metric.rho = 0.5;
  logs.soc_metric = SocMetric::LogEuclidean;
  logs.prototypes = Prototypes::Diagonal;
  logs.screen_top_m = 2;
  for (PacoLossOptions* options : {&stein, &logs}) options->soc_epsilon = 0.1;
  return {plain, pooled, stein, logs};
}

TEST(PacoLoss, is_nan_for_parts_that_are_not_finite_and_keeps_its_prototypes) {
  at::manual_seed(22);
  const Tensor some = random({3, 4, 6}), targets = labels({0, 1, 2});
  for (const PacoLossOptions& options : limit_options()) {
    PacoLoss module(options);
    module->forward(some, some.flip(1), targets);
    const Tensor prototype = module->prototype.clone();
    for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e30, 1e200}) {
      for (const bool everywhere : {false, true}) {
        const Tensor z1 = some.clone(), z2 = some.flip(1);
        everywhere ? z1.fill_(bad) : z1[1][2][3] = bad;
        z1.requires_grad_();
        z2.requires_grad_();
        const PacoLossOutput out = module->forward(z1, z2, targets);
        for (const Tensor& value : {out.pac, out.soc, out.active_share, out.empty_share}) {
          EXPECT_TRUE(is_nan(value)) << bad;
        }
        for (const Tensor& loss : {out.pac, out.soc}) {
          z1.mutable_grad() = Tensor();
          z2.mutable_grad() = Tensor();
          loss.backward({}, /*retain_graph=*/true);
          EXPECT_TRUE(is_nan(z1.grad()) && is_nan(z2.grad())) << bad;
        }
        EXPECT_TRUE(module->prototype.equal(prototype));
        EXPECT_TRUE(module->prototype_count.equal(labels({1, 1, 1})));
      }
    }
    const PacoLossOutput out = module->forward(some, some.flip(1), targets);
    EXPECT_TRUE(is_finite(out.pac + out.soc));
  }
}

PacoLossOptions of_many_classes(Prototypes kind) {
  PacoLossOptions options{.classes = 4096, .dim = 64};
  options.prototypes = kind;
  return options;
}

TEST(Prototypes, of_other_classes_are_neither_copied_nor_changed) {
  at::manual_seed(23);
  const memory::MemoryMeter meter;
  const Tensor targets = labels({4095, 7, 4095, 0});
  PacoLoss module(of_many_classes(Prototypes::Full));
  {
    const torch::NoGradGuard no_grad;
    module->prototype.fill_(std::numeric_limits<double>::quiet_NaN());
    module->prototype.index_fill_(0, labels({0, 7, 4095}), 0);
  }
  const Tensor z1 = at::randn({4, 4, 64}).requires_grad_(), z2 = at::randn({4, 4, 64});
  meter.reset_peak();
  const Index before = meter.use().current;
  for (int twice = 0; twice < 2; ++twice) {  // the second time with prototypes
    const Tensor soc = module->forward(z1, z2, targets).soc;
    soc.backward();
    EXPECT_TRUE(is_finite(soc) && is_finite(z1.grad()));
  }
  const auto whole = static_cast<Index>(module->prototype.nbytes());
  EXPECT_LT(meter.use().peak - before, whole / 8);
  EXPECT_EQ(at::isfinite(module->prototype).flatten(1).all(1).sum().item<Index>(), 3);
  EXPECT_EQ(module->prototype_count[4095].item<Index>(), 4);
  EXPECT_EQ(module->prototype_count.sum().item<Index>(), 8);
}

TEST(Prototypes, of_scattered_classes_are_those_of_loops) {
  at::manual_seed(24);
  for (const Prototypes kind : {Prototypes::Full, Prototypes::Diagonal}) {
    PacoLossOptions options{.classes = 9, .dim = 5};
    options.prototypes = kind;
    options.prototype_momentum = 0.75;
    PacoLoss module(options);
    module->to(at::kDouble);
    std::vector<Tensor> want(9);
    for (const std::vector<Index>& batch : {std::vector<Index>{7, 2, 7, 0}, {2, 8, 2, 7}}) {
      const Tensor z1 = random({4, 3, 5}), z2 = random({4, 3, 5});
      module->forward(z1, z2, labels(batch));
      for (Index i = 0; i < 4; ++i) {
        Tensor mean = (covariance(z1[i]) + covariance(z2[i])) / 2 +
                      diagonal_of(at::scalar_tensor(options.soc_epsilon, at::kDouble), 5);
        if (kind == Prototypes::Diagonal) mean = mean.diagonal();
        Tensor& own = want[static_cast<std::size_t>(batch[static_cast<std::size_t>(i)])];
        own = own.defined() ? 0.75 * own + 0.25 * mean : mean;
      }
    }
    for (Index c = 0; c < 9; ++c) {
      const Tensor& own = want[static_cast<std::size_t>(c)];
      const Tensor got = module->prototype[c];
      EXPECT_LE(worst(got, own.defined() ? own : at::zeros_like(got)), 1e-12) << c;
    }
    EXPECT_TRUE(module->prototype_count.to(at::kLong).equal(labels({1, 0, 3, 0, 0, 0, 0, 3, 1})));
  }
}

// The backward pass is that of the prototypes before the update of its own batch, also where the
// module has the type that the kernels compute in.
TEST(Prototypes, change_after_their_use) {
  at::manual_seed(25);
  const Tensor targets = labels({5, 1, 5});
  for (const Prototypes kind : {Prototypes::Full, Prototypes::Diagonal}) {
    PacoLossOptions options{.classes = 6, .dim = 5};
    options.prototypes = kind;
    options.beta = 1;
    PacoLoss module(options), still(options);
    module->to(at::kDouble);
    still->to(at::kDouble);
    for (PacoLoss one : {module, still}) {
      at::manual_seed(26);
      const Tensor first = random({3, 4, 5});
      one->forward(first, first.flip(1), targets);
    }
    still->eval();
    const Tensor start1 = random({3, 4, 5}), start2 = random({3, 4, 5});
    std::vector<Tensor> grads;
    for (PacoLoss one : {module, still}) {
      const Tensor z1 = start1.clone().requires_grad_();
      one->forward(z1, start2, targets).soc.backward();
      grads.push_back(z1.grad());
    }
    EXPECT_FALSE(module->prototype.equal(still->prototype));
    EXPECT_TRUE(grads[0].equal(grads[1]));
  }
}

}  // namespace
}  // namespace hone::paco
