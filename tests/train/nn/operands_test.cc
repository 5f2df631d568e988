// SPDX-License-Identifier: Apache-2.0
// What the fused operations of a decoder block take, and what they refuse.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "hone/core/error.h"
#include "hone/train/nn/attention.h"
#include "hone/train/nn/ops.h"
#include "hone/train/sketch/linear_attention.h"
#include "tests/support/error_of.h"
#include "tests/support/tensors.h"

namespace hone::nn {
namespace {

using test::refusal;
using test::relative_error;
using testing::HasSubstr;
using torch::Tensor;

TEST(Operands, a_norm_refuses_what_does_not_fit_its_rows) {
  const Tensor x = at::randn({6, 16}), weight = at::ones({16});
  EXPECT_THAT(refusal([&] {
                add_rms_norm(x, at::randn({1, 16}), weight, 1e-5);
              }),
              HasSubstr("delta"));
  EXPECT_THAT(refusal([&] { add_rms_norm(x, {}, at::ones({8}), 1e-5); }), HasSubstr("weight"));
  EXPECT_THAT(refusal([&] { add_rms_norm(x, x, at::ones({16, 1}), 1e-5); }), HasSubstr("weight"));
  EXPECT_THAT(refusal([&] { add_rms_norm(x, {}, weight.to(at::kBFloat16), 1e-5); }),
              HasSubstr("f32"));
}

TEST(Operands, a_norm_reads_a_strided_weight) {
  const Tensor x = at::randn({6, 16}), weight = at::randn({16, 3}).select(1, 1);
  const Tensor want = composed::add_rms_norm(x, x, weight, 1e-5).second;
  EXPECT_LE(relative_error(add_rms_norm(x, x, weight, 1e-5).second, want), 1e-6);
}

TEST(Operands, a_gated_unit_refuses_rows_of_odd_length) {
  EXPECT_THAT(refusal([] { glu(at::randn({3, 7}), Gate::Silu); }), HasSubstr("even"));
}

TEST(Operands, a_product_takes_any_number_of_leading_dimensions) {
  const Tensor weight = at::randn({8, 16}), bias = at::randn({8});
  for (const MatmulBackend backend : {MatmulBackend::Auto, MatmulBackend::Mkl}) {
    for (const auto& sizes :
         std::vector<std::vector<Index>>{{16}, {5, 16}, {2, 3, 16}, {2, 1, 3, 16}}) {
      const Tensor x = at::randn(sizes);
      const Tensor got = linear(x, weight, bias, backend), want = at::linear(x, weight, bias);
      ASSERT_EQ(got.sizes(), want.sizes());
      EXPECT_LE(relative_error(got, want), 1e-5);
    }
  }
  const Tensor x = at::randn({4, 12});
  EXPECT_THAT(refusal([&] { linear(x, weight, bias, MatmulBackend::Auto); }), HasSubstr("weight"));
  EXPECT_THAT(refusal([&] {
                linear(at::randn({4, 16}), weight, x, MatmulBackend::Auto);
              }),
              HasSubstr("bias"));
}

TEST(Operands, a_loss_refuses_targets_that_do_not_fit_its_rows) {
  const Tensor hidden = at::randn({4, 16}), weight = at::randn({9, 16});
  const auto loss = [&](const Tensor& matrix, const Tensor& targets) {
    return refusal([&] { linear_cross_entropy(hidden, matrix, targets, MatmulBackend::Auto); });
  };
  EXPECT_THAT(loss(weight, at::zeros({3}, at::kLong)), HasSubstr("target"));
  EXPECT_THAT(loss(weight, at::zeros({4}, at::kInt)), HasSubstr("int64"));
  EXPECT_THAT(loss(at::randn({9, 8}), at::zeros({4}, at::kLong)), HasSubstr("weight"));
}

using Operation = std::function<Tensor(const Tensor& x, const Tensor& weight)>;

// Results that depend on both arguments, [4, 16] and [16].
std::map<std::string, Operation> operations() {
  const auto matrix = [](const Tensor& weight) { return weight * at::ones({16, 1}); };
  return {{"add_rms_norm",
           [](const Tensor& x, const Tensor& w) { return add_rms_norm(x, x, w, 1e-5).second; }},
          {"glu", [](const Tensor& x, const Tensor& w) { return glu(x * w, Gate::Silu); }},
          {"linear_cross_entropy",
           [=](const Tensor& x, const Tensor& w) {
             return linear_cross_entropy(x, matrix(w), at::zeros({4}, at::kLong),
                                         MatmulBackend::Mkl);
           }},
          {"attention",
           [](const Tensor& x, const Tensor& w) {
             const HeadLayout layout{2, 1, 4};
             const RopeTable rope{at::ones({4, 2}), at::zeros({4, 2})};
             return causal_attention((x * w).unsqueeze(0), rope, layout);
           }},
          {"linear_attention", [](const Tensor& x, const Tensor& w) {
             const Tensor q = (x * w).reshape({1, 4, 1, 16});
             return linear_attention(q, q, q, at::randn({8, 16}), {});
           }}};
}

TEST(Operands, second_derivatives_are_refused) {
  for (const auto& [name, operation] : operations()) {
    const Tensor x = at::randn({4, 16}).requires_grad_(), w = at::rand({16}).requires_grad_();
    const Tensor loss = operation(x, w).square().sum();
    EXPECT_THAT(refusal([&] { loss.backward({}, std::nullopt, /*create_graph=*/true); },
                        ErrorCategory::Unsupported),
                HasSubstr("create_graph"))
        << name;
    operation(x, w).square().sum().backward();
    EXPECT_TRUE(at::isfinite(x.grad()).all().item<bool>()) << name;
  }
}

}  // namespace
}  // namespace hone::nn
