// SPDX-License-Identifier: Apache-2.0
// Rows of TAM's scope Row are the indices of a parameter's first dimension.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hone/train/optim/tam.h"
#include "tests/support/tensors.h"

namespace hone::optim {
namespace {

AdaTAMOptions by_row() {
  return AdaTAMOptions(0.01).correlation_method(CorrelationMethod::Vectorized);
}

torch::Tensor gradient(int step) {
  torch::manual_seed(50 + step);
  return at::randn({8, 4, 3, 3});
}

torch::Tensor trained(at::MemoryFormat format, bool as_matrix) {
  torch::manual_seed(1);
  torch::Tensor param = at::randn({8, 4, 3, 3}).contiguous(format);
  if (as_matrix) param = param.reshape({8, 36});
  param.requires_grad_();
  AdaTAM optimizer({param}, by_row());
  for (int step = 0; step < 5; ++step) {
    param.mutable_grad() = at::empty_like(param).copy_(gradient(step).reshape(param.sizes()));
    optimizer.step();
  }
  for (const NamedState& entry : optimizer.export_state()) {
    if (entry.name == "correlation") EXPECT_EQ(entry.value.numel(), 8);
  }
  return param.detach().reshape({8, 36});
}

TEST(TamRows, a_convolution_steps_as_the_matrix_of_its_output_channels) {
  const torch::Tensor matrix = trained(at::MemoryFormat::Contiguous, true);
  EXPECT_TRUE(at::equal(trained(at::MemoryFormat::Contiguous, false), matrix));
  EXPECT_LE(hone::test::relative_error(trained(at::MemoryFormat::ChannelsLast, false), matrix),
            1e-5);
}

}  // namespace
}  // namespace hone::optim
