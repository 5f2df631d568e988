// SPDX-License-Identifier: Apache-2.0
// The products of factored layers against the published form in f64, and their gradients.
#include "hone/train/sketch/factored_linear.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <tuple>
#include <vector>

#include "hone/train/amp/autocast_guard.h"
#include "hone/train/memory/memory_meter.h"
#include "tests/support/error_of.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using test::gradient_error;
using test::PerTerm;
using test::relative;
using test::seeded_layer;
using test::seeded_normal;
using torch::Tensor;

FactoredLinearOptions sketched(Index in, Index out, Index terms, Index low_rank) {
  return {.in_features = in,
          .out_features = out,
          .rank = 2 * terms * low_rank,
          .terms = terms,
          .mode = FactorMode::Sketched,
          .bias = true,
          .seed = 7,
          .recompute = false,
          .epilogue = {}};
}
FactoredLinearOptions low_rank(Index in, Index out, Index rank) {
  FactoredLinearOptions options = sketched(in, out, 1, 1);
  options.rank = rank;
  options.mode = FactorMode::LowRank;
  return options;
}

TEST(FactoredLinear, equals_the_mean_over_terms_in_plain_loops) {
  FactoredLinear layer = seeded_layer(sketched(5, 4, 2, 3), 1);
  const PerTerm terms = PerTerm::of(*layer);
  const Tensor x = seeded_normal({3, 5}, 9);
  const auto at = [](const Tensor& t, auto... i) {
    return t.index({i...}).template item<double>();
  };
  const Tensor y = layer->forward(x);
  for (int n = 0; n < 3; ++n) {
    for (int o = 0; o < 4; ++o) {
      double sum = 0;
      for (int t = 0; t < 2; ++t) {
        for (int k = 0; k < 3; ++k) {
          for (int i = 0; i < 5; ++i) {
            sum += at(x, n, i) * (at(terms.s1s, t, i, k) * at(terms.u1s, t, k, o) +
                                  at(terms.u2s, t, i, k) * at(terms.s2s, t, k, o));
          }
        }
      }
      EXPECT_NEAR(at(y, n, o), sum / 4 + at(terms.bias, o), 1e-12);
    }
  }
}

// One term of small rank, several terms, and sizes that are no multiple of a vector.
class FactoredLinearSizes
    : public testing::TestWithParam<std::tuple<Index, Index, Index, Index, bool>> {};

TEST_P(FactoredLinearSizes, average_each_term_once_in_value_and_gradients) {
  const auto [size, rank, terms, rows, has_bias] = GetParam();
  FactoredLinearOptions options = sketched(size, size + 3, terms, rank);
  options.bias = has_bias;
  const LayerWarning before = set_layer_warning([](std::string_view) {});
  FactoredLinear exact = seeded_layer(options, 3), layer = seeded_layer(options, 3);
  set_layer_warning(before);
  layer->to(at::kFloat);
  const PerTerm oracle = PerTerm::of(*exact);
  const Tensor x = seeded_normal({rows, size}, 4).set_requires_grad(true);
  const Tensor by_y = seeded_normal({rows, size + 3}, 5);
  const Tensor want = oracle.forward(x);
  want.backward(by_y);
  const Tensor want_x = x.grad().clone();
  for (FactoredLinear each : {exact, layer}) {
    const at::ScalarType type = each->first().scalar_type();
    const double tolerance = type == at::kDouble ? 1e-12 : 2e-6;
    const Tensor input = x.detach().to(type).set_requires_grad(true);
    const Tensor y = each->forward(input);
    y.backward(by_y.to(type));
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_LE(relative(y, want), tolerance);
    EXPECT_LE(relative(input.grad(), want_x), tolerance);
    EXPECT_LE(relative(each->first().grad(), oracle.by_first()), tolerance);
    EXPECT_LE(relative(each->second().grad(), oracle.by_second()), tolerance);
    if (has_bias) {
      EXPECT_LE(relative(each->bias().grad(), oracle.bias.grad()), tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Small, FactoredLinearSizes,
                         testing::Combine(testing::Values(10, 30), testing::Values(1, 7, 16),
                                          testing::Values(1, 2, 3), testing::Values(1, 15, 17),
                                          testing::Bool()));
INSTANTIATE_TEST_SUITE_P(Large, FactoredLinearSizes,
                         testing::Combine(testing::Values(500, 1000),
                                          testing::Values(64, 96, 97, 128), testing::Values(1, 3),
                                          testing::Values(1, 64), testing::Values(true)));

TEST(FactoredLinear, has_the_gradients_of_central_differences) {
  for (const bool recompute : {false, true}) {
    for (const FactorMode mode : {FactorMode::Sketched, FactorMode::LowRank}) {
      FactoredLinearOptions options =
          mode == FactorMode::Sketched ? sketched(6, 5, 2, 1) : low_rank(6, 5, 3);
      options.recompute = recompute;
      FactoredLinear layer = seeded_layer(options, 11);
      Tensor x = seeded_normal({4, 6}, 12).set_requires_grad(true);
      const Tensor weights = seeded_normal({4, 5}, 13);
      const auto loss = [&] { return (layer->forward(x).pow(2) * weights).sum(); };
      EXPECT_LE(gradient_error(loss, x), 1e-8);
      EXPECT_LE(gradient_error(loss, layer->first()), 1e-8);
      EXPECT_LE(gradient_error(loss, layer->second()), 1e-8);
      EXPECT_LE(gradient_error(loss, layer->bias()), 1e-8);
    }
  }
}

TEST(FactoredLinear, refuses_second_derivatives) {
  FactoredLinear layer = seeded_layer(low_rank(6, 5, 3), 11);
  const Tensor x = seeded_normal({4, 6}, 12).set_requires_grad(true);
  const auto twice = [&] {
    layer->forward(x).pow(2).sum().backward({}, std::nullopt, /*create_graph=*/true);
  };
  EXPECT_NE(refusal(twice, ErrorCategory::Unsupported), "");
}

TEST(FactoredLinear, adds_to_every_output_its_own_bias) {
  FactoredLinear layer = seeded_layer(sketched(64, 200, 1, 16), 1);
  {
    const at::NoGradGuard no_grad;
    Tensor(layer->bias()).copy_(at::arange(200, at::kDouble));
  }
  layer->to(at::kFloat);
  const Tensor y = layer->forward(at::zeros({3, 64}, at::kFloat));
  EXPECT_TRUE(at::equal(y, at::arange(200, at::kFloat).expand({3, 200})));
}

TEST(FactoredLinear, takes_vectors_sequences_strides_expansions_and_no_rows) {
  FactoredLinear layer = seeded_layer(low_rank(6, 5, 3), 2);
  const Tensor x = seeded_normal({6, 4, 6}, 3);
  const Tensor want = at::matmul(x, layer->effective_weight().t()) + layer->bias();
  EXPECT_LE(relative(layer->forward(x), want), 1e-13);
  EXPECT_LE(relative(layer->forward(x[0][0]), want[0][0]), 1e-13);
  EXPECT_EQ(layer->forward(x[0][0]).dim(), 1);
  const Tensor turned = x.transpose(0, 2);
  EXPECT_LE(relative(layer->forward(turned),
                     at::matmul(turned, layer->effective_weight().t()) + layer->bias()),
            1e-13);
  const Tensor expanded = x[0][0].expand({3, 6});
  EXPECT_LE(relative(layer->forward(expanded), want[0][0].expand({3, 5})), 1e-13);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    layer->to(type);
    const Tensor none =
        at::empty({0, 4, 6}, at::TensorOptions().dtype(type)).set_requires_grad(true);
    const Tensor y = layer->forward(none);
    EXPECT_EQ(y.sizes(), (std::vector<std::int64_t>{0, 4, 5}));
    y.sum().backward();
    EXPECT_EQ(none.grad().sizes(), none.sizes());
    EXPECT_EQ(layer->first().grad().abs().sum().item<double>(), 0);
  }
}

TEST(FactoredLinear, keeps_public_widths_where_it_pads_the_rank) {
  Tensor x = seeded_normal({8, 1000}, 1, at::kFloat), want = x.to(at::kDouble);
  for (const auto& [in, out] : {std::pair<Index, Index>{1000, 500}, {500, 250}, {250, 10}}) {
    FactoredLinear layer = seeded_layer(low_rank(in, out, 9), in);
    want = at::linear(want, layer->effective_weight(), layer->bias());
    layer->to(at::kFloat);
    x = layer->forward(x);
    EXPECT_EQ(x.sizes(), want.sizes());
    EXPECT_EQ(layer->factors().first.size(0), 9);
  }
  EXPECT_LE(relative(x, want), 1e-5);
}

TEST(FactoredLinear, has_the_same_bits_in_every_call) {
  FactoredLinear layer = seeded_layer(sketched(96, 80, 3, 8), 5);
  layer->to(at::kFloat);
  const Tensor x = seeded_normal({33, 96}, 6, at::kFloat);
  const Tensor first = layer->forward(x);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(at::equal(layer->forward(x), first));
}

TEST(FactoredLinear, trains_as_the_published_form_does) {
  FactoredLinear layer = seeded_layer(sketched(12, 9, 2, 2), 21);
  PerTerm oracle = PerTerm::of(*layer);
  const Tensor x = seeded_normal({16, 12}, 22), target = seeded_normal({16, 9}, 23);
  torch::optim::SGD ours(layer->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::optim::SGD theirs({oracle.s1s, oracle.s2s, oracle.bias},
                           torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 20; ++step) {
    ours.zero_grad();
    theirs.zero_grad();
    (layer->forward(x) - target).pow(2).mean().backward();
    (oracle.forward(x) - target).pow(2).mean().backward();
    ours.step();
    theirs.step();
  }
  const at::NoGradGuard no_grad;
  EXPECT_LE(relative(layer->forward(x), oracle.forward(x)), 1e-10);
  EXPECT_GT(relative(layer->first(), seeded_layer(sketched(12, 9, 2, 2), 21)->first()), 1e-3);
}

TEST(FactoredLinear, computes_in_the_type_of_its_weights) {
  FactoredLinear layer = seeded_layer(sketched(100, 60, 2, 6), 31);
  const Tensor x = seeded_normal({16, 100}, 32);
  const Tensor want = layer->forward(x);
  for (const auto& [type, tolerance] :
       {std::pair{at::kFloat, 4e-6}, {at::kBFloat16, 2e-2}, {at::kHalf, 4e-3}}) {
    layer->to(type);
    const Tensor y = layer->forward(x.to(type));
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_LE(relative(y, want), tolerance) << at::toString(type);
    const auto mixed = [&] { layer->forward(x); };
    EXPECT_NE(refusal(mixed).find("expected x of type"), std::string::npos);
  }
  const auto integers = [&] { layer->forward(at::ones({2, 100}, at::kLong)); };
  EXPECT_NE(refusal(integers).find("floating point"), std::string::npos);
}

TEST(FactoredLinear, keeps_24_bits_of_f32_inputs) {
  FactoredLinear layer = seeded_layer(low_rank(8, 8, 8), 1);
  layer->to(at::kFloat);
  const Tensor x = at::full({1, 8}, 1 + 0x1p-20, at::kFloat);
  const Tensor step = layer->forward(x) - layer->forward(at::ones({1, 8}, at::kFloat));
  EXPECT_GT(step.abs().max().item<double>(), 0);
}

TEST(FactoredLinear, rounds_operands_under_autocast_and_gives_f32_gradients) {
  FactoredLinear layer = seeded_layer(low_rank(64, 48, 16), 41);
  layer->to(at::kFloat);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const at::ScalarType input_type : {at::kFloat, type}) {
      layer->zero_grad();
      const Tensor x = seeded_normal({8, 64}, 42, input_type).set_requires_grad(true);
      const amp::AutocastGuard autocast(at::kCPU, type);
      const Tensor y = layer->forward(x);
      const auto through = [&](const Tensor& t) { return t.detach().to(type).to(at::kFloat); };
      const auto [a, b] = layer->factors();
      Tensor want;
      {
        const amp::AutocastGuard exact(at::kCPU, type, false);
        want = at::mm(through(at::mm(through(x), through(a).t())), through(b)) + layer->bias();
      }
      const double tolerance = type == at::kHalf ? 2e-3 : 1e-2;
      EXPECT_LE(relative(y, want), tolerance);
      y.sum().backward();
      EXPECT_EQ(layer->first().grad().scalar_type(), at::kFloat);
      EXPECT_EQ(layer->second().grad().scalar_type(), at::kFloat);
      EXPECT_EQ(x.grad().scalar_type(), input_type);
    }
  }
}

TEST(FactoredLinear, keeps_inputs_and_trained_columns_for_the_backward_pass_and_frees_them) {
  constexpr Index kRows = 512, kIn = 64, kOut = 48, kWidth = 16;
  FactoredLinearOptions options = sketched(kIn, kOut, 1, kWidth);
  for (const bool recompute : {false, true}) {
    options.recompute = recompute;
    FactoredLinear layer = seeded_layer(options, 1);
    layer->to(at::kFloat);
    const Tensor x = seeded_normal({kRows, kIn}, 2, at::kFloat);
    layer->forward(x).sum().backward();  // allocates the gradients
    const memory::MemoryMeter meter;
    const auto live = [&] { return meter.use().current; };
    const auto before = live();
    {
      const Tensor y = layer->forward(x * 1);
      const Index numbers = kRows * (kIn + (recompute ? 0 : kWidth) + kOut);
      EXPECT_NEAR(static_cast<double>(live() - before), 4.0 * static_cast<double>(numbers),
                  0.01 * 4 * static_cast<double>(numbers));
      y.sum().backward();
    }
    EXPECT_EQ(live(), before);
  }
}

TEST(FactoredLinear, leaves_random_generators_alone_and_starts_within_the_bounds_of_its_inputs) {
  torch::manual_seed(5);
  const Tensor want = at::rand({4});
  torch::manual_seed(5);
  FactoredLinearOptions options = sketched(400, 100, 1, 8);
  FactoredLinear layer(options), again(options);
  options.seed = 8;
  FactoredLinear other(options);
  EXPECT_TRUE(at::equal(at::rand({4}), want));
  const double largest = layer->bias().abs().max().item<double>();
  EXPECT_LE(largest, 1 / std::sqrt(400.0));
  EXPECT_GT(largest, 0.9 / std::sqrt(400.0));
  EXPECT_TRUE(at::equal(layer->effective_weight(), again->effective_weight()));
  EXPECT_FALSE(at::equal(layer->first(), other->first()));
  EXPECT_FALSE(at::equal(layer->fixed_signs().first, other->fixed_signs().first));
}

TEST(FactoredLinear, refuses_sizes_that_do_not_fit) {
  const auto build = [](FactoredLinearOptions options) {
    return refusal([&] { FactoredLinear layer(options); });
  };
  EXPECT_NE(build(sketched(0, 4, 1, 1)).find("inputs and outputs"), std::string::npos);
  EXPECT_NE(build(low_rank(4, 4, 0)).find("a rank"), std::string::npos);
  FactoredLinearOptions odd = sketched(40, 40, 2, 1);
  odd.rank = 6;
  EXPECT_NE(build(odd).find("multiple of 2 * terms"), std::string::npos);
  odd.terms = 0;
  EXPECT_NE(build(odd), "");
  FactoredLinearOptions dropped = low_rank(40, 40, 4);
  dropped.epilogue.dropout = 1;
  EXPECT_NE(build(dropped).find("dropout"), std::string::npos);
  FactoredLinear layer = seeded_layer(low_rank(6, 5, 3), 2);
  EXPECT_NE(refusal([&] {
              layer->forward(at::ones({2, 7}, at::kDouble));
            }).find("6]"),
            std::string::npos);
  EXPECT_NE(refusal([&] { layer->forward(at::ones({}, at::kDouble)); }), "");
  EXPECT_NE(refusal([&] {
              FactoredLinear wrong(
                  low_rank(6, 5, 3),
                  FactoredWeights{at::ones({3, 6}), at::ones({3, 4}), at::ones({5}), {}});
            }).find("second factor"),
            std::string::npos);
}

}  // namespace
}  // namespace hone::nn
