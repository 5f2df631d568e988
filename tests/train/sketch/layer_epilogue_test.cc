// SPDX-License-Identifier: Apache-2.0
// Activations and dropout inside a factored layer, against LibTorch's separate operators.
#include "hone/train/nn/epilogue.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "hone/core/philox.h"
#include "hone/train/nn/recompute.h"
#include "hone/train/sketch/dropout.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using test::gradient_error;
using test::relative;
using test::seeded_layer;
using test::seeded_normal;
using torch::Tensor;

FactoredLinearOptions with(Activation activation, double dropout) {
  FactoredLinearOptions options;
  options.in_features = 24;
  options.out_features = 20;
  options.rank = 8;
  options.terms = 2;
  options.epilogue = {activation, dropout};
  return options;
}

Tensor separate(Activation activation, const Tensor& z) {
  switch (activation) {
    case Activation::None:
      return z;
    case Activation::Relu:
      return at::relu(z);
    case Activation::Gelu:
      return z * 0.5 * (1 + at::erf(z / std::sqrt(2.0)));
    case Activation::GeluTanh:
      return z * 0.5 * (1 + at::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z.pow(3))));
    case Activation::Silu:
      return z / (1 + at::exp(-z));
    case Activation::Sigmoid:
      return 1 / (1 + at::exp(-z));
    case Activation::Tanh:
      return 1 - 2 / (at::exp(2 * z) + 1);
  }
  return {};
}

class FusedEpilogue : public testing::TestWithParam<Activation> {};

TEST_P(FusedEpilogue, equals_the_separate_operators_in_value_and_gradients) {
  for (const bool recompute : {false, true}) {
    FactoredLinearOptions options = with(GetParam(), 0.25);
    options.recompute = recompute;
    FactoredLinear fused = seeded_layer(options, 1);
    options.epilogue = {};
    FactoredLinear plain = seeded_layer(options, 1);
    const Tensor x = seeded_normal({7, 24}, 2).set_requires_grad(true);
    const Tensor same = x.detach().clone().set_requires_grad(true);
    const Tensor by_y = seeded_normal({7, 20}, 3);
    torch::manual_seed(17);
    const Tensor y = fused->forward(x);
    torch::manual_seed(17);
    const Tensor mask =
        detail::kept(at::kCPU, y.numel(), 0.25, detail::draw_dropout_key()).view_as(y);
    const Tensor want = separate(GetParam(), plain->forward(same)) * mask / 0.75;
    y.backward(by_y);
    want.backward(by_y);
    EXPECT_LE(relative(y, want), 1e-13);
    EXPECT_LE(relative(x.grad(), same.grad()), 1e-12);
    EXPECT_LE(relative(fused->first().grad(), plain->first().grad()), 1e-12);
    EXPECT_LE(relative(fused->second().grad(), plain->second().grad()), 1e-12);
    EXPECT_LE(relative(fused->bias().grad(), plain->bias().grad()), 1e-12);
  }
}

TEST_P(FusedEpilogue, has_the_gradients_of_central_differences) {
  FactoredLinear layer = seeded_layer(with(GetParam(), 0), 1);
  Tensor x = seeded_normal({3, 24}, 2).set_requires_grad(true);
  const Tensor weights = seeded_normal({3, 20}, 3);
  const auto loss = [&] { return (layer->forward(x) * weights).sum(); };
  EXPECT_LE(gradient_error(loss, x), 1e-7);
  EXPECT_LE(gradient_error(loss, layer->second()), 1e-7);
}

TEST_P(FusedEpilogue, is_the_activation_alone_in_evaluation) {
  FactoredLinear fused = seeded_layer(with(GetParam(), 0.5), 1);
  FactoredLinear plain = seeded_layer(with(Activation::None, 0), 1);
  fused->eval();
  const at::NoGradGuard no_grad;
  const Tensor x = seeded_normal({7, 24}, 2);
  EXPECT_LE(relative(fused->forward(x), separate(GetParam(), plain->forward(x))), 1e-13);
}

INSTANTIATE_TEST_SUITE_P(All, FusedEpilogue,
                         testing::Values(Activation::None, Activation::Relu, Activation::Gelu,
                                         Activation::GeluTanh, Activation::Silu,
                                         Activation::Sigmoid, Activation::Tanh));

TEST(Dropout, keeps_the_elements_whose_philox_words_reach_the_rate) {
  constexpr std::uint64_t kKey = 0x123456789abcdef0u;
  constexpr double kRate = 0.3;
  const auto threshold = static_cast<std::uint32_t>(std::floor(kRate * 0x1p32));
  for (const Index count : {1, 63, 64, 1000}) {
    const Tensor ones = at::ones({count}), out = at::empty({count});
    detail::drop(ones, kRate, kKey, out);
    const Tensor mask = detail::kept(at::kCPU, count, kRate, kKey);
    for (Index e = 0; e < count; ++e) {
      const auto block = static_cast<std::uint32_t>(e / 4);
      const bool keeps = philox(kKey, {block, 0, 0, 0})[e % 4] >= threshold;
      ASSERT_EQ(mask[e].item<bool>(), keeps) << e;
      ASSERT_EQ(out[e].item<float>(), keeps ? static_cast<float>(1 / 0.7) : 0.0f) << e;
    }
  }
}

TEST(Dropout, has_one_mask_for_all_types_and_thread_counts) {
  const Tensor ones = at::ones({300'000});
  Tensor want = at::empty_like(ones), out = at::empty_like(ones);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  detail::drop(ones, 0.5, 9, want);
  at::set_num_threads(2);
  detail::drop(ones, 0.5, 9, out);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(out, want));
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16, at::kHalf}) {
    const Tensor other = ones.to(type);
    detail::drop(other, 0.5, 9, other);
    EXPECT_TRUE(at::equal(other.to(at::kFloat), want));
  }
}

TEST(Dropout, drops_its_rate_and_draws_each_mask_anew) {
  constexpr double kRate = 0.2, kCount = 1e6;
  const Tensor ones = at::ones({1'000'000}), first = at::empty_like(ones);
  const Tensor second = at::empty_like(ones);
  torch::manual_seed(1);
  detail::drop(ones, kRate, detail::draw_dropout_key(), first);
  detail::drop(ones, kRate, detail::draw_dropout_key(), second);
  const auto share = [&](const Tensor& dropped) { return dropped.sum().item<double>() / kCount; };
  const double zeros = first.eq(0).sum().item<double>();
  const double deviation = std::sqrt(kCount * kRate * (1 - kRate));
  EXPECT_NEAR(zeros, kRate * kCount, 5 * deviation);
  const double both = (first.eq(0) & second.eq(0)).sum().item<double>();
  EXPECT_NEAR(both, kRate * kRate * kCount, 5 * std::sqrt(kRate * kRate * kCount));
  EXPECT_EQ(share(ones), 1);
  detail::drop(ones, 0, 3, first);
  EXPECT_TRUE(at::equal(first, ones));
}

TEST(Dropout, repeats_its_mask_where_a_segment_is_recomputed) {
  FactoredLinear layer = seeded_layer(with(Activation::Gelu, 0.5), 1);
  const Tensor x = seeded_normal({7, 24}, 2).set_requires_grad(true);
  const Tensor same = x.detach().clone().set_requires_grad(true);
  torch::manual_seed(4);
  layer->forward(x).pow(2).sum().backward();
  torch::manual_seed(4);
  const Tensors y =
      recompute([&](const Tensors& in) { return Tensors{layer->forward(in[0])}; }, {same});
  y[0].pow(2).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), same.grad()));
}

}  // namespace
}  // namespace hone::nn
