// SPDX-License-Identifier: Apache-2.0
// The example of docs/guide-paco.md, compiled and run.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "hone/train/paco/loss.h"
#include "hone/train/paco/sampler.h"

namespace {

TEST(PacoGuide, example_gives_a_loss_with_gradients) {
  const torch::Tensor features_1 = at::rand({4, 512, 7, 7}).requires_grad_();
  const torch::Tensor features_2 = at::rand({4, 512, 7, 7}).requires_grad_();
  const torch::Tensor logits = at::randn({4, 80}).requires_grad_();
  const torch::Tensor targets = at::arange(4, at::kLong);

  hone::paco::PacoLoss losses(hone::paco::PacoLossOptions{.classes = 80, .dim = 64});
  torch::nn::Linear projection(torch::nn::LinearOptions(512, 64).bias(false));

  const auto one = hone::paco::sample_parts(features_1, {}),
             two = hone::paco::sample_parts(features_2, {});
  const auto parts =
      losses->forward(projection->forward(one.parts), projection->forward(two.parts), targets);
  const auto ce =
      hone::paco::weighted_cross_entropy(logits, targets, (one.weight + two.weight) / 2, {});
  (ce + parts.pac + 0.1 * parts.soc).backward();

  for (const torch::Tensor& leaf : {features_1, features_2, logits, projection->weight}) {
    EXPECT_GT(leaf.grad().abs().max().item<double>(), 0);
  }
}

}  // namespace
