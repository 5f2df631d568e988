// SPDX-License-Identifier: Apache-2.0
// Gradients of learned steps against the definition, and what convert_qat() makes of them.
#include "hone/train/compress/qat.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cmath>
#include <string>
#include <vector>

#include "hone/train/compress/quantizable.h"
#include "hone/train/nn/vision.h"
#include "hone/train/relative_error.h"
#include "tests/support/error_of.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using test::seeded_normal;
using testing::HasSubstr;
using torch::Tensor;
using torch::nn::Sequential;

TEST(FakeQuantize, rounds_half_to_even_and_clamps) {
  const Tensor step = at::tensor({0.5F, 2.0F});
  const Tensor weight = at::tensor({0.25F, 0.75F, -0.6F, 9.0F, -9.0F,  //
                                    1.0F, 3.0F, -2.9F, 100.0F, -100.0F})
                            .reshape({2, 5});
  const Tensor want = at::tensor({0.0F, 1.0F, -0.5F, 1.5F, -2.0F,  //
                                  0.0F, 4.0F, -2.0F, 6.0F, -8.0F})
                          .reshape({2, 5});
  EXPECT_TRUE(fake_quantize(weight, step, 3).equal(want));
}

TEST(FakeQuantize, has_the_gradients_of_learned_steps) {
  for (const int bits : {2, 3, 4, 8}) {
    const double low = -std::exp2(bits - 1), high = std::exp2(bits - 1) - 1;
    const Tensor weight = (3 * seeded_normal({3, 7}, 1, at::kDouble)).requires_grad_();
    const Tensor step = at::tensor({0.3, 1.1, 0.02}, at::kDouble).requires_grad_();
    const Tensor grad = seeded_normal({3, 7}, 2, at::kDouble);
    fake_quantize(weight, step, bits).backward(grad);
    for (Index row = 0; row < 3; ++row) {
      double by_step = 0;
      for (Index c = 0; c < 7; ++c) {
        const double s = step[row].item<double>(), v = weight[row][c].item<double>() / s,
                     g = grad[row][c].item<double>();
        const bool inside = v >= low && v <= high;
        EXPECT_EQ(weight.grad()[row][c].item<double>(), inside ? g : 0);
        by_step += g * (inside ? std::nearbyint(v) - v : v < low ? low : high);
      }
      EXPECT_NEAR(step.grad()[row].item<double>(), by_step / std::sqrt(7 * high), 1e-12) << bits;
    }
  }
}

TEST(FakeQuantize, begins_with_the_published_step) {
  const Tensor weight = seeded_normal({2, 9}, 1, at::kDouble);
  const Tensor step = initial_step(weight, 4);
  EXPECT_NEAR(step[1].item<double>(), 2 * weight[1].abs().mean().item<double>() / std::sqrt(7.0),
              1e-12);
  // A row of zeros has no step, and stays 0 without NaN.
  const Tensor zeros = at::zeros({1, 4}).requires_grad_(), none = at::zeros({1}).requires_grad_();
  const Tensor y = fake_quantize(zeros, none, 4);
  y.sum().backward();
  EXPECT_TRUE(y.eq(0).all().item<bool>());
  EXPECT_TRUE(at::isfinite(none.grad()).all().item<bool>());
}

Sequential make_conv_net() {
  torch::manual_seed(3);
  return Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1).stride(2)),
                    torch::nn::ReLU(),
                    torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).groups(2).bias(false)),
                    torch::nn::Flatten(), torch::nn::Linear(8 * 2 * 2, 5));
}

// A few steps, which move weights and steps.
void train(Sequential& net, const Tensor& x) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05));
  for (int i = 0; i < 5; ++i) {
    optimizer.zero_grad();
    net->forward(x).square().mean().backward();
    optimizer.step();
  }
}

TEST(Qat, converts_to_the_same_bits) {
  for (const int bits : {2, 3, 4, 8}) {
    Sequential net = make_conv_net();
    const Tensor x = seeded_normal({6, 3, 8, 8}, 1, at::kFloat);
    for (const QatLayerRecord& record : prepare_qat(*net, {.bits = bits})) {
      EXPECT_EQ(record.status, CompressionStatus::Applied) << record.path << record.reason;
    }
    const Tensor step = net->named_parameters()["0.layer.step"].detach().clone();
    train(net, x);
    EXPECT_FALSE(net->named_parameters()["0.layer.step"].equal(step)) << "steps are trained";
    const at::NoGradGuard no_grad;
    const Tensor want = net->forward(x);
    std::vector<Tensor> weights;
    for (const char* name : {"0.layer.", "2.layer.", "4.layer."}) {
      const auto parameters = net->named_parameters();
      weights.push_back(fake_quantize(parameters[std::string(name) + "weight"],
                                      parameters[std::string(name) + "step"], bits));
    }
    EXPECT_EQ(convert_qat(*net, /*act_int8=*/false), 3);
    EXPECT_LT(relative_error(net->forward(x), want), 1e-5) << bits;
    const auto places = quantized_layers(*net);
    ASSERT_EQ(places.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      const StoredWeight& stored = *places[i].layer->stored_weights()[0].stored;
      EXPECT_EQ(stored.format(), "int" + std::to_string(bits) + ":row");
      EXPECT_EQ(stored.bytes(), stored.rows() * (4 + (stored.cols() * bits + 7) / 8));
    }
    EXPECT_EQ(dequantize(*net), 3);
    EXPECT_TRUE(net->forward(x).equal(want)) << "bit for bit, " << bits << " bits";
    const auto parameters = net->named_parameters();
    EXPECT_TRUE(parameters["0.layer.weight"].equal(weights[0]));
    EXPECT_TRUE(parameters["2.layer.weight"].equal(weights[1]));
    EXPECT_TRUE(parameters["4.layer.weight"].equal(weights[2]));
  }
}

// With 2 bits, training with the codes in sight ends far below rounding afterwards.
TEST(Qat, ends_below_rounding_of_the_trained_weights) {
  torch::manual_seed(5);
  const Tensor x = seeded_normal({256, 16}, 1, at::kFloat);
  const Tensor target = at::tanh(at::matmul(x, seeded_normal({16, 4}, 2, at::kFloat)));
  const auto train_on = [&](Sequential& net, int steps) {
    torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(3e-3));
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      at::mse_loss(net->forward(x), target).backward();
      optimizer.step();
    }
  };
  const auto loss_of = [&](Sequential& net) {
    const at::NoGradGuard no_grad;
    return at::mse_loss(net->forward(x), target).item<double>();
  };
  Sequential net(torch::nn::Linear(16, 32), torch::nn::Tanh(), torch::nn::Linear(32, 4));
  train_on(net, 500);
  Sequential rounded = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  ASSERT_TRUE(quantize(rounded, {.spec = "int2:row", .act_int8 = false}).is_applied);
  prepare_qat(*net, {.bits = 2});
  train_on(net, 500);
  convert_qat(*net, /*act_int8=*/false);
  EXPECT_LT(loss_of(net), 0.5 * loss_of(rounded));
}

TEST(Qat, leaves_a_resnet_usable_and_its_folder_small) {
  VisionNet net = make_vision_net({.name = "resnet20",
                                   .width = 16,
                                   .channels = 3,
                                   .height = 16,
                                   .image_width = 16,
                                   .classes = 5},
                                  /*seed=*/2);
  const auto records = prepare_qat(*net, {.bits = 3, .layers = {"^conv1$=float", "^linear$=8"}});
  ASSERT_EQ(records.size(), 20U);
  EXPECT_EQ(records.front().status, CompressionStatus::Skipped);
  EXPECT_EQ(records.back().bits, 8);
  net->eval();
  const Tensor x = seeded_normal({2, 3, 16, 16}, 1, at::kFloat);
  const at::NoGradGuard no_grad;
  const Tensor want = net->forward(x);
  EXPECT_EQ(convert_qat(*net, /*act_int8=*/false), 19);
  EXPECT_LT(relative_error(net->forward(x), want), 1e-5);
}

TEST(Qat, shares_weights_clones_and_moves_state) {
  Sequential net = make_conv_net();
  const Tensor weight = net->named_parameters()["0.weight"];
  prepare_qat(*net);
  EXPECT_TRUE(net->named_parameters()["0.layer.weight"].is_same(weight))
      << "optimizers of the weights stay";
  const Tensor x = seeded_normal({2, 3, 8, 8}, 1, at::kFloat);
  const auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  EXPECT_TRUE(copy->forward(x).equal(net->forward(x)));
  train(net, x);
  EXPECT_FALSE(copy->forward(x).equal(net->forward(x)));
}

TEST(Qat, says_why_a_layer_stays_and_refuses_what_it_does_not_know) {
  struct Fixed : torch::nn::Module {
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(3, 4));
  };
  Fixed fixed;
  const auto records = prepare_qat(fixed);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].status, CompressionStatus::Skipped);
  EXPECT_THAT(records[0].reason, HasSubstr("Slot"));
  Sequential net = make_conv_net();
  for (const int bits : {1, 9, -3}) {
    EXPECT_THAT(refusal([&] { prepare_qat(*net, {.bits = bits}); }), HasSubstr("bits"));
  }
  for (const char* entry : {"0", "=4", "0=x", "0=9", "nowhere=4"}) {
    EXPECT_FALSE(refusal([&] { prepare_qat(*net, {.layers = {entry}}); }).empty()) << entry;
  }
  EXPECT_EQ(net->named_parameters().size(), 5U) << "nothing was changed";
  EXPECT_THAT(refusal([&] {
                fake_quantize(at::ones({2, 3}), at::ones({3}), 4);
              }),
              HasSubstr("step"));
}

}  // namespace
}  // namespace hone::nn
