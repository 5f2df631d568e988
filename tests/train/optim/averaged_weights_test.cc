// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/averaged_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "hone/train/optim/adam.h"

namespace hone::optim {
namespace {

TEST(AveragedWeights, leave_the_bits_of_parameters_and_averages_as_they_were) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    torch::manual_seed(4);
    torch::Tensor param = at::randn({40, 30}).to(type).requires_grad_();
    AdamW optimizer({param}, AdamWOptions(0.01));
    for (int step = 0; step < 5; ++step) {
      param.mutable_grad() = at::randn({40, 30}).to(type);
      optimizer.step_with({.ema_decay = 0.9});
    }
    const torch::Tensor average = optimizer.averages()[0].clone(), before = param.detach().clone();
    ASSERT_EQ(average.scalar_type(), at::kFloat);
    torch::Tensor buffer = at::ones({3}), mean = at::zeros({3});
    for (int scope = 0; scope < 2; ++scope) {
      const std::vector<AveragedBuffer> buffers{{"mean", buffer, mean}};
      const AveragedWeights averaged(optimizer, buffers);
      EXPECT_TRUE(at::equal(param.detach(), average.to(type)));
      EXPECT_TRUE(at::equal(buffer, at::zeros({3})));
    }
    EXPECT_TRUE(at::equal(param.detach(), before));
    EXPECT_TRUE(at::equal(optimizer.averages()[0], average));
    EXPECT_TRUE(at::equal(buffer, at::ones({3})));
  }
}

}  // namespace
}  // namespace hone::optim
