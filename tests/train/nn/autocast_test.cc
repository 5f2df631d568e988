// SPDX-License-Identifier: Apache-2.0
// The fused products of a decoder under autocast, against LibTorch's arithmetic on rounded
// operands.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <cmath>
#include <vector>

#include "hone/core/error.h"
#include "hone/train/amp/autocast_guard.h"
#include "hone/train/nn/llama.h"
#include "hone/train/nn/ops.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr Index kRows = 24, kIn = 40, kOut = 16;

Tensor through(const Tensor& f32, at::ScalarType type) { return f32.to(type).to(at::kFloat); }

double worst(const Tensor& got, const Tensor& want) {
  return ((got - want).abs().max() / want.abs().max()).item<double>();
}

// Half an ulp of each type at 1, as far as two orders of summation may round apart.
double ulp(at::ScalarType type) { return type == at::kHalf ? 0x1p-10 : 0x1p-7; }

class AutocastProducts : public testing::TestWithParam<std::tuple<at::ScalarType, MatmulBackend>> {
 protected:
  void SetUp() override {
    const auto backend = std::get<1>(GetParam());
    if (backend == MatmulBackend::OneDnn && !at::globalContext().hasMKLDNN()) {
      GTEST_SKIP() << "this LibTorch has no oneDNN";
    }
    at::manual_seed(3);
    x_ = at::randn({kRows, kIn}).requires_grad_(true);
    weight_ = at::randn({kOut, kIn}).requires_grad_(true);
    bias_ = at::randn({kOut}).requires_grad_(true);
    by_out_ = at::randn({kRows, kOut});
  }
  Tensor x_, weight_, bias_, by_out_;
};

TEST_P(AutocastProducts, round_operands_results_and_gradients_to_the_type) {
  const auto [type, backend] = GetParam();
  Tensor out;
  {
    const amp::AutocastGuard autocast(at::kCPU, type);
    out = linear(x_, weight_, bias_, backend);
  }
  ASSERT_EQ(out.scalar_type(), at::kFloat);
  out.backward(by_out_);
  const Tensor x = through(x_.detach(), type), w = through(weight_.detach(), type);
  const Tensor grad = through(by_out_, type);
  EXPECT_LE(worst(out.detach(), through(at::mm(x, w.t()), type) + bias_.detach()), ulp(type));
  EXPECT_LE(worst(x_.grad(), through(at::mm(grad, w), type)), ulp(type));
  EXPECT_LE(worst(weight_.grad(), through(at::mm(grad.t(), x), type)), ulp(type));
  EXPECT_LE(worst(bias_.grad(), by_out_.sum(0)), 1e-6);
  EXPECT_GT(worst(out.detach(), at::linear(x_, weight_, bias_).detach()), 1e-5) << "not lowered";
}

TEST_P(AutocastProducts, scale_the_gradient_of_logits_before_they_round_it) {
  const auto [type, backend] = GetParam();
  const Tensor targets = at::arange(kRows).remainder(kOut);
  const double tiny = 1e-9;  // below fp16's smallest number unless scaled
  for (const double scale : {1.0, 65536.0}) {
    x_.mutable_grad() = weight_.mutable_grad() = Tensor();
    Tensor loss;
    {
      const amp::AutocastGuard autocast(at::kCPU, type);
      loss = linear_cross_entropy(x_, weight_, targets, backend);
    }
    (loss * tiny * scale).backward();
    const bool lost = type == at::kHalf && scale == 1.0;
    EXPECT_EQ(x_.grad().count_nonzero().item<Index>() == 0, lost) << scale;
    if (lost) continue;
    const Tensor logits =
        through(at::mm(through(x_.detach(), type), through(weight_.detach(), type).t()), type);
    const Tensor by_logits =
        (logits.softmax(1) - at::one_hot(targets, kOut).to(at::kFloat)) * (tiny * scale);
    const Tensor want = at::mm(by_logits, through(weight_.detach(), type));
    EXPECT_LE(worst(x_.grad(), want), 4 * ulp(type)) << scale;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AutocastProducts,
                         testing::Combine(testing::Values(at::kBFloat16, at::kHalf),
                                          testing::Values(MatmulBackend::Mkl,
                                                          MatmulBackend::OneDnn)));

TEST(LlamaAutocast, has_gradients_near_those_of_fp32_and_overflows_as_fp16_does) {
  model_io::Architecture shape;
  shape.vocab_size = 37, shape.hidden_size = 24, shape.intermediate_size = 40, shape.layers = 2;
  shape.heads = shape.kv_heads = 3, shape.head_dim = 8, shape.context = 16;
  shape.rope.rotary_dims = shape.head_dim;
  const Llama model(shape, 1);
  const Tensor ids = at::arange(32).remainder(37).view({2, 16});
  const auto gradients = [&](at::ScalarType type, double scale) {
    for (const Tensor& parameter : model->parameters()) parameter.mutable_grad() = Tensor();
    Tensor loss;
    {
      const amp::AutocastGuard autocast(at::kCPU, type, type != at::kFloat);
      loss = model->loss_sum(ids, ids);
    }
    (loss * scale).backward();
    std::vector<Tensor> flat;
    for (const Tensor& parameter : model->parameters()) flat.push_back(parameter.grad().flatten());
    return at::cat(flat);
  };
  const Tensor exact = gradients(at::kFloat, 1);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const Tensor got = gradients(type, 1);
    EXPECT_LT((got - exact).norm().item<double>(), 8 * ulp(type) * exact.norm().item<double>());
    EXPECT_GT((got - exact).norm().item<double>(), 0);
  }
  EXPECT_FALSE(at::isfinite(gradients(at::kHalf, 1e6)).all().item<bool>());
  EXPECT_TRUE(at::isfinite(gradients(at::kBFloat16, 1e6)).all().item<bool>());
}

}  // namespace
}  // namespace hone::nn
