// SPDX-License-Identifier: Apache-2.0
// Accumulated micro-batches under a scaler in fp64: the mean of the whole group, whatever the
// split.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <vector>

#include "hone/train/amp/grad_scaler.h"

namespace hone::amp {
namespace {

using torch::Tensor;

constexpr Index kRows = 12, kFeatures = 64;

// Least squares over twelve rows with a weight each, as tokens count.
struct Rows {
  Rows() {
    torch::manual_seed(4);
    x = at::randn({kRows, kFeatures}, at::kDouble);
    y = at::randn({kRows}, at::kDouble);
  }
  Tensor loss_sum(const Tensor& w, Index first, Index count) const {
    const Tensor error = at::mv(x.narrow(0, first, count), w) - y.narrow(0, first, count);
    return (weight.narrow(0, first, count) * error * error / 2).sum();
  }
  Tensor x, y, weight = at::ones({kRows}, at::kDouble);
};

// A step of rate 1 from zero leaves minus the gradient. Backward runs on sum / w₀ with the weight
// of the first micro-batch, and w₀ / Σ weights is part of the step.
Tensor gradient_of(const Rows& rows, const std::vector<Index>& split) {
  Tensor w = at::zeros({kFeatures}, at::kDouble).requires_grad_(true);
  torch::optim::SGD optimizer({w}, torch::optim::SGDOptions(1));
  GradScaler scaler({.init_scale = 1024});
  const double nominal = rows.weight.narrow(0, 0, split.front()).sum().item<double>();
  double total = 0;
  Index first = 0;
  for (const Index count : split) {
    scaler.scale(rows.loss_sum(w, first, count) / nominal).backward();
    total += rows.weight.narrow(0, first, count).sum().item<double>();
    first += count;
  }
  EXPECT_TRUE(scaler.step(optimizer, {.inv_scale = nominal / total}).stepped);
  EXPECT_FALSE(scaler.update().found_inf) << "once per group";
  return -w.detach();
}

TEST(GradScaler, accumulation_in_fp64_gives_the_gradient_of_the_whole_batch) {
  for (const bool weighted : {false, true}) {
    Rows rows;
    if (weighted) rows.weight = at::arange(kRows, at::kDouble).remainder(5) + 1;
    const Tensor w = at::zeros({kFeatures}, at::kDouble).requires_grad_(true);
    (rows.loss_sum(w, 0, kRows) / rows.weight.sum()).backward();
    const double size = w.grad().abs().max().item<double>();
    for (const std::vector<Index>& split :
         std::vector<std::vector<Index>>{{12}, {4, 4, 4}, {5, 5, 2}}) {
      const Tensor got = gradient_of(rows, split);
      EXPECT_LE((got - w.grad()).abs().max().item<double>(), 1e-12 * size)
          << split.size() << weighted;
    }
  }
}

}  // namespace
}  // namespace hone::amp
