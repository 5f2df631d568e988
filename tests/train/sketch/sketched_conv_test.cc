// SPDX-License-Identifier: Apache-2.0
// Sketched convolutions against LibTorch's with the kernel that the layer stands for.
#include "hone/train/sketch/sketched_conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "hone/train/amp/autocast_guard.h"
#include "hone/train/memory/memory_meter.h"
#include "tests/support/error_of.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using test::gradient_error;
using test::relative;
using test::seeded_normal;
using torch::Tensor;

SketchedConv2dOptions small_conv(FactorMode mode = FactorMode::Sketched) {
  SketchedConv2dOptions options;
  options.in_channels = 6;
  options.out_channels = 8;
  options.rank = 4;
  options.terms = 2;
  options.mode = mode;
  options.seed = 3;
  return options;
}
SketchedConv2d seeded_conv(const SketchedConv2dOptions& options) {
  SketchedConv2dWeights weights;
  weights.first =
      seeded_normal({options.groups * options.rank, options.in_channels / options.groups,
                     options.kernel[0], options.kernel[1]},
                    1);
  if (options.mode == FactorMode::LowRank) {
    weights.second = seeded_normal({options.out_channels, options.rank, 1, 1}, 2);
  }
  if (options.bias) weights.bias = seeded_normal({options.out_channels}, 3);
  return SketchedConv2d(options, weights);
}

// conv2d with W_eff, padded by hand where LibTorch's operator only pads with zeros.
Tensor dense_forward(SketchedConv2dImpl& layer, const Tensor& x) {
  const SketchedConv2dOptions& options = layer.options();
  Tensor image = x;
  HeightWidth padding = options.padding;
  if (options.padding_mode != PaddingMode::Zeros) {
    const char* const modes[] = {"constant", "reflect", "replicate", "circular"};
    image = at::pad(x, {padding[1], padding[1], padding[0], padding[0]},
                    modes[static_cast<int>(options.padding_mode)]);
    padding = {0, 0};
  }
  return at::conv2d(image, layer.effective_weight(), layer.bias(), options.stride, padding,
                    options.dilation, options.groups);
}

std::vector<SketchedConv2dOptions> geometries(FactorMode mode) {
  std::vector<SketchedConv2dOptions> all(7, small_conv(mode));
  all[1].kernel = {5, 5};
  all[1].stride = all[1].padding = {2, 2};
  all[2].padding = {0, 0};
  all[2].bias = false;
  all[3].kernel = {5, 3};
  all[3].stride = {2, 1};
  all[3].padding = {1, 0};
  all[4].dilation = {2, 1};
  all[4].padding = all[4].same_padding();
  all[5].groups = 2;
  all[6].padding_mode = PaddingMode::Reflect;
  for (const PaddingMode other : {PaddingMode::Replicate, PaddingMode::Circular}) {
    all.push_back(small_conv(mode));
    all.back().padding_mode = other;
    all.back().padding = {1, 2};
  }
  return all;
}

TEST(SketchedConv, equals_the_convolution_with_its_kernel_in_every_geometry) {
  for (const FactorMode mode : {FactorMode::Sketched, FactorMode::LowRank}) {
    for (const SketchedConv2dOptions& options : geometries(mode)) {
      SketchedConv2d layer = seeded_conv(options);
      const Tensor x = seeded_normal({3, 6, 11, 9}, 4);
      const Tensor y = layer->forward(x), want = dense_forward(*layer, x);
      ASSERT_EQ(y.sizes(), want.sizes());
      EXPECT_LE(relative(y, want), 1e-12);
      EXPECT_LE(relative(layer->forward(x[0]), want[0]), 1e-12);
    }
  }
}

TEST(SketchedConv, is_the_published_sum_over_fixed_signs) {
  SketchedConv2d layer = seeded_conv(small_conv());
  const Tensor u = layer->fixed_signs();
  EXPECT_TRUE(at::equal(u.abs(), at::ones_like(u)));  // low_rank is 1
  const Tensor kernel = at::einsum("so,sihw->oihw", {u, layer->first()}) / 4.0;
  EXPECT_LE(relative(layer->effective_weight(), kernel), 1e-13);
}

TEST(SketchedConv, has_the_gradients_of_central_differences) {
  for (const FactorMode mode : {FactorMode::Sketched, FactorMode::LowRank}) {
    for (const Index groups : {1, 2}) {
      SketchedConv2dOptions options = small_conv(mode);
      options.groups = groups;
      options.stride = {2, 1};
      SketchedConv2d layer = seeded_conv(options);
      Tensor x = seeded_normal({2, 6, 5, 4}, 4).set_requires_grad(true);
      const auto loss = [&] { return layer->forward(x).pow(2).sum(); };
      EXPECT_LE(gradient_error(loss, x), 1e-7);
      EXPECT_LE(gradient_error(loss, layer->first()), 1e-7);
      EXPECT_LE(gradient_error(loss, layer->bias()), 1e-7);
      if (mode == FactorMode::LowRank) {
        EXPECT_LE(gradient_error(loss, layer->second()), 1e-7);
      }
    }
  }
}

TEST(SketchedConv, has_the_gradients_of_separate_convolutions) {
  for (const SketchedConv2dOptions& options : geometries(FactorMode::Sketched)) {
    SketchedConv2d layer = seeded_conv(options);
    const Tensor x = seeded_normal({3, 6, 11, 9}, 4).set_requires_grad(true);
    const Tensor same = x.detach().clone().set_requires_grad(true);
    const Tensor s = layer->first().detach().clone().set_requires_grad(true);
    SketchedConv2dOptions other = options;
    other.mode = FactorMode::LowRank;
    SketchedConv2d plain(
        other,
        SketchedConv2dWeights{
            s,
            (layer->fixed_signs().t() / 4.0).reshape({options.out_channels, options.rank, 1, 1}),
            layer->bias(),
            {}});
    const Tensor y = layer->forward(x);
    const Tensor by_y = seeded_normal(y.sizes(), 5);
    y.backward(by_y);
    plain->forward(same).backward(by_y);
    EXPECT_LE(relative(x.grad(), same.grad()), 1e-12);
    EXPECT_LE(relative(layer->first().grad(), plain->first().grad()), 1e-12);
  }
}

TEST(SketchedConv, keeps_only_the_input_for_the_backward_pass) {
  SketchedConv2d layer = seeded_conv(small_conv());
  const Tensor x = seeded_normal({16, 6, 32, 32}, 4);
  layer->forward(x).sum().backward();
  const memory::MemoryMeter meter;
  const Index before = meter.use().current;
  {
    const Tensor y = layer->forward(x * 1);
    const auto want = static_cast<double>(x.nbytes() + y.nbytes());
    EXPECT_NEAR(static_cast<double>(meter.use().current - before), want, 0.01 * want);
    y.sum().backward();
  }
  EXPECT_EQ(meter.use().current, before);
}

TEST(SketchedConv, gives_the_same_in_chunks_that_fit_their_bytes) {
  for (const SketchedConv2dOptions& options : geometries(FactorMode::Sketched)) {
    SketchedConv2d layer = seeded_conv(options);
    const Tensor x = seeded_normal({7, 6, 11, 9}, 4);
    const Tensor want = layer->forward(x);
    for (const Index bytes : {1, 40'000, 1'000'000}) {
      EXPECT_LE(relative(layer->forward_chunked(x, bytes), want), 1e-13);
    }
  }
  SketchedConv2dOptions wide = small_conv();
  wide.rank = 64;
  SketchedConv2d layer = seeded_conv(wide);
  layer->to(at::kFloat);
  const Tensor x = seeded_normal({64, 6, 32, 32}, 4, at::kFloat);
  constexpr Index kBytes = 4 << 20;
  const memory::MemoryMeter meter;
  meter.reset_peak();
  const Index before = meter.use().current;
  const Tensor y = layer->forward_chunked(x, kBytes);
  EXPECT_LE(meter.use().peak - before, static_cast<Index>(y.nbytes()) + kBytes);
  EXPECT_NE(refusal([&] { layer->forward_chunked(x, 0); }), "");
}

TEST(SketchedConv, computes_in_the_type_of_its_weights_and_of_autocast) {
  SketchedConv2d layer = seeded_conv(small_conv());
  const Tensor x = seeded_normal({2, 6, 9, 9}, 4);
  const Tensor want = layer->forward(x).detach();
  layer->to(at::kFloat);
  EXPECT_LE(relative(layer->forward(x.to(at::kFloat)), want), 1e-5);
  {
    const amp::AutocastGuard autocast(at::kCPU, at::kBFloat16);
    const Tensor input = x.to(at::kFloat).set_requires_grad(true);
    const Tensor y = layer->forward(input);
    EXPECT_LE(relative(y, want), 2e-2);
    y.sum().backward();
    EXPECT_EQ(input.grad().scalar_type(), at::kFloat);
    EXPECT_EQ(layer->first().grad().scalar_type(), at::kFloat);
  }
  EXPECT_NE(refusal([&] { layer->forward(x); }).find("x of type"), std::string::npos);
  layer->to(at::kBFloat16);
  EXPECT_LE(relative(layer->forward(x.to(at::kBFloat16)), want), 2e-2);
  layer->to(at::kDouble);
  const auto copy = std::dynamic_pointer_cast<SketchedConv2dImpl>(layer->clone());
  EXPECT_TRUE(at::equal(copy->forward(x), layer->forward(x)));
}

TEST(SketchedConv, counts_numbers_and_warns_past_its_break_even) {
  SketchedConv2d layer = seeded_conv(small_conv());
  LayerFacts facts = layer->facts();
  EXPECT_EQ(facts.trainable, 4 * 6 * 9 + 8);
  EXPECT_EQ(facts.stored_bytes, 8 * facts.trainable + 16);
  EXPECT_EQ(facts.resident_bytes, facts.stored_bytes + 8 * 4 * 8);
  EXPECT_EQ(facts.forward_flops, 2 * 4 * (6 * 9 + 8));
  EXPECT_EQ(facts.backward_flops, 4 * 4 * 6 * 9 + 2 * 4 * 8);
  EXPECT_DOUBLE_EQ(facts.break_even, 4.0 * (54 + 8) / (54 * 8));
  int warnings = 0;
  const LayerWarning before = set_layer_warning([&](std::string_view) { ++warnings; });
  SketchedConv2dOptions wide = small_conv();
  seeded_conv(wide);
  EXPECT_EQ(warnings, 0);
  wide.rank = 8;
  seeded_conv(wide)->clone();
  set_layer_warning(before);
  EXPECT_EQ(warnings, 1);
}

TEST(SketchedConv, starts_within_the_bounds_of_its_inputs) {
  SketchedConv2dOptions options = small_conv();
  options.out_channels = 400;
  options.rank = 20;
  options.terms = 5;
  const SketchedConv2d layer(options);
  const double bound = 1 / std::sqrt(6.0 * 9), largest = layer->bias().abs().max().item<double>();
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.9 * bound);
}

torch::nn::Conv2d trained_conv(torch::nn::Conv2dOptions options) {
  torch::nn::Conv2d conv(options);
  const at::NoGradGuard no_grad;
  conv->to(at::kDouble);
  conv->weight.copy_(seeded_normal(conv->weight.sizes(), 6));
  if (conv->bias.defined()) conv->bias.copy_(seeded_normal(conv->bias.sizes(), 7));
  return conv;
}

TEST(FromConv, is_exact_at_full_rank_and_keeps_the_geometry) {
  const auto base = [] { return torch::nn::Conv2dOptions(6, 8, 3); };
  const LayerWarning before = set_layer_warning([](std::string_view) {});
  for (torch::nn::Conv2dOptions options :
       {base(), base().padding(1).bias(false), base().padding(torch::kSame).dilation(2),
        base().padding(torch::kValid).stride({2, 1}), base().groups(2).padding({2, 1}),
        base().padding(1).padding_mode(torch::kReflect),
        base().padding(2).padding_mode(torch::kCircular)}) {
    torch::nn::Conv2d conv = trained_conv(options);
    conv->eval();
    SketchedConv2d layer = from_conv(*conv, {.rank = 8 / options.groups()});
    const Tensor x = seeded_normal({2, 6, 10, 9}, 8);
    EXPECT_LE(relative(layer->forward(x), conv->forward(x)), 1e-10);
    EXPECT_EQ(layer->bias().defined(), conv->bias.defined());
    EXPECT_FALSE(layer->is_training());
  }
  set_layer_warning(before);
}

TEST(FromConv, has_the_errors_of_its_fits) {
  torch::nn::Conv2d conv = trained_conv(torch::nn::Conv2dOptions(6, 32, 3));
  const Tensor matrix = conv->weight.detach().view({32, -1});
  const auto error = [&](const ConvFitOptions& options) {
    return relative(from_conv(*conv, options)->effective_weight(), conv->weight);
  };
  const Tensor values = at::linalg_svdvals(matrix);
  EXPECT_NEAR(error({.rank = 8}), (values.narrow(0, 8, 24).norm() / values.norm()).item<double>(),
              1e-10);
  double random = 0, projected = 0;
  constexpr int kSeeds = 50;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto sketched = [&](Fit fit) {
      return error({.mode = FactorMode::Sketched, .fit = fit, .rank = 8, .terms = 2, .seed = seed});
    };
    random += std::pow(sketched(Fit::Random), 2);
    projected += std::pow(sketched(Fit::Projection), 2);
  }
  EXPECT_NEAR(random / kSeeds / (31 / 8.0), 1, 0.05);
  EXPECT_NEAR(projected / kSeeds / (1 - 8 / 32.0), 1, 0.05);
}

TEST(SketchedConv, refuses_what_it_cannot_factor) {
  const auto build = [](auto change) {
    SketchedConv2dOptions options = small_conv();
    change(options);
    return refusal([&] { SketchedConv2d layer(options); });
  };
  EXPECT_NE(build([](auto& o) { o.groups = 4; }).find("groups"), std::string::npos);
  EXPECT_NE(build([](auto& o) { o.out_channels = o.groups = 6; }).find("depth-wise"),
            std::string::npos);
  EXPECT_NE(build([](auto& o) { o.stride = {0, 1}; }), "");
  EXPECT_NE(build([](auto& o) { o.rank = 6; }).find("multiple"), std::string::npos);
  EXPECT_NE(build([](auto& o) { o.in_channels = 0; }), "");
  SketchedConv2d layer = seeded_conv(small_conv());
  EXPECT_NE(refusal([&] { layer->forward(at::zeros({2, 5, 9, 9}, at::kDouble)); }), "");
  torch::nn::Conv2d even = trained_conv(torch::nn::Conv2dOptions(6, 8, 2).padding(torch::kSame));
  EXPECT_NE(refusal([&] { from_conv(*even, {.rank = 2}); }, ErrorCategory::Unsupported), "");
  EXPECT_NE(refusal([&] { from_conv(*even, {.fit = Fit::Random, .rank = 2}); }), "");
  torch::nn::Conv2d odd = trained_conv(torch::nn::Conv2dOptions(6, 8, 3));
  const auto refused = [&odd](const ConvFitOptions& fit) {
    return refusal([&] { from_conv(*odd, fit); });
  };
  EXPECT_NE(refused({.rank = 9}).find("a rank of 1 to 8, got 9"), std::string::npos);
  EXPECT_NE(refused({}).find("a rank of 1 to 8, got 0"), std::string::npos);
  EXPECT_NE(refused({.rank = 4, .terms = 2}).find("Only a sketched layer has terms"),
            std::string::npos);
  const at::NoGradGuard no_grad;
  odd->bias[0] = std::nan("");
  EXPECT_NE(refused({.rank = 4}).find("bias has NaN"), std::string::npos);
}

}  // namespace
}  // namespace hone::nn
