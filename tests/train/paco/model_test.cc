// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hone/core/log.h"
#include "hone/train/optim/adam.h"
#include "tests/support/error_of.h"

namespace hone::paco {
namespace {

using hone::test::error_of;
using testing::HasSubstr;
using torch::Tensor;

PacoModelOptions small(Index classes = 3) {
  PacoModelOptions options{.classes = classes};
  options.backbone = {
      .name = "resnet20", .width = 4, .channels = 3, .height = 32, .image_width = 32};
  options.dim = 8;
  return options;
}

Index parameters_of(const torch::nn::Module& module) {
  Index count = 0;
  for (const Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

// The published counts less the 1000-way head and one scalar that nothing used.
TEST(PacoModel, has_the_published_number_of_parameters) {
  for (const auto& [name, dim, count] :
       {std::tuple{"resnet18", 32, 11233936}, std::tuple{"resnet18", 64, 11250320},
        std::tuple{"resnet50", 32, 23737488}, std::tuple{"resnet50", 64, 23803024}}) {
    PacoModelOptions options{.classes = 80, .dim = dim};
    options.backbone.name = name;
    EXPECT_EQ(parameters_of(*PacoModel(options)), count) << name << dim;
  }
}

TEST(PacoModel, gives_logits_of_one_view_and_losses_of_two) {
  at::manual_seed(1);
  PacoModel model(small());
  const Tensor one = at::randn({4, 3, 32, 32}), two = at::randn({4, 3, 32, 32});
  const Tensor targets = at::tensor({0, 1, 2, 0}, at::kLong);
  const PacoOutput out = model->forward(one, two, targets);
  EXPECT_EQ(out.logits.sizes(), (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(out.view1.parts.sizes(), (std::vector<std::int64_t>{4, 4, 16}));
  const double total =
      out.ce.item<double>() + out.pac.item<double>() + 0.1 * out.soc.item<double>();
  EXPECT_NEAR(out.total.item<double>(), total, 1e-5 * total);
  out.total.backward();
  for (const auto& parameter : model->named_parameters()) {
    ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
    EXPECT_TRUE(at::isfinite(parameter.value().grad()).all().item<bool>()) << parameter.key();
  }
  model->eval();
  const PacoOutput alone = model->forward(one);
  EXPECT_FALSE(alone.total.defined());
  EXPECT_FALSE(alone.view1.parts.defined());
  const PacoOutput both = model->forward(one, two);
  EXPECT_FALSE(both.total.defined());
  const Tensor mean = (alone.logits + model->forward(two).logits) / 2;
  EXPECT_TRUE(both.logits.allclose(mean, 1e-4, 1e-5));
}

TEST(PacoModel, does_not_compute_a_loss_without_a_weight) {
  at::manual_seed(4);
  const Tensor one = at::randn({4, 3, 32, 32}), two = at::randn({4, 3, 32, 32});
  const Tensor targets = at::tensor({0, 1, 2, 0}, at::kLong);
  const PacoOutput whole = PacoModel(small())->forward(one, two, targets);
  for (const auto& [pac, soc] : {std::pair{0.0, 0.1}, {1.0, 0.0}, {0.0, 0.0}}) {
    PacoModelOptions options = small();
    options.lambda_pac = pac;
    options.eta_soc = soc;
    PacoModel model(options);
    EXPECT_TRUE(model->optimization_info().at("last_step").is_null());
    const PacoOutput out = model->forward(one, two, targets);
    Tensor total = out.ce;
    ASSERT_EQ(out.pac.defined(), pac > 0);
    ASSERT_EQ(out.soc.defined(), soc > 0);
    if (pac > 0) {
      EXPECT_TRUE(out.pac.equal(whole.pac));
      total = total + out.pac;
    }
    if (soc > 0) {
      EXPECT_TRUE(out.soc.equal(whole.soc));
      total = total + 0.1 * out.soc;
    }
    EXPECT_TRUE(out.ce.equal(whole.ce));
    EXPECT_NEAR(out.total.item<double>(), total.item<double>(), 1e-6);
    out.total.backward();
    EXPECT_EQ(model->projection->weight.grad().defined(), pac + soc > 0);
    EXPECT_EQ(model->loss->prototype_count.sum().item<Index>(), soc > 0 ? 4 : 0);
    const Json info = model->optimization_info(), &step = info.at("last_step");
    EXPECT_EQ(info.at("class_prototypes_initialized"), soc > 0 ? 3 : 0);
    for (const char* name : {"effective_delta", "active_hinge_share", "empty_share", "saved"}) {
      EXPECT_EQ(step.at(name).is_null(), pac == 0) << name;
    }
    EXPECT_GT(step.at("seconds").at("backbone").get<double>(), 0);
  }
}

TEST(PacoModel, takes_views_as_one_batch_where_told) {
  at::manual_seed(2);
  PacoModelOptions options = small();
  const Tensor one = at::randn({4, 3, 32, 32}), two = 3 * at::randn({4, 3, 32, 32});
  Tensor logits[2], batches[2];
  for (const bool joint : {false, true}) {
    options.joint_views = joint;
    PacoModel model(options);
    logits[joint] = model->forward(one, two).logits;
    batches[joint] = model->named_buffers()["backbone.bn1.num_batches_tracked"];
  }
  EXPECT_FALSE(logits[0].allclose(logits[1]));  // other statistics of the batch
  EXPECT_EQ(batches[0].item<Index>(), 2);
  EXPECT_EQ(batches[1].item<Index>(), 1);
}

TEST(PacoModel, is_the_same_for_the_same_seed) {
  PacoModelOptions options = small();
  const PacoModel model(options), same(options);
  options.seed = 5;
  const PacoModel other(options);
  const auto weights = model->named_parameters(), equal = same->named_parameters();
  for (const auto& weight : weights) {
    EXPECT_TRUE(weight.value().equal(equal[weight.key()])) << weight.key();
  }
  EXPECT_FALSE(model->projection->weight.equal(other->projection->weight));
  EXPECT_FALSE(model->backbone->parameters().front().equal(other->backbone->parameters().front()));
}

TEST(PacoModel, reduces_parts_and_dimension_with_a_warning_each) {
  set_log_level(LogLevel::Warning);
  PacoModelOptions options = small();
  options.sampler.parts = 6;
  options.dim = 128;
  testing::internal::CaptureStderr();
  const PacoModel model(options);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("parts = 6 is reduced to 4"));
  EXPECT_THAT(log, HasSubstr("dim = 128 is reduced to 64"));
  EXPECT_EQ(model->options().sampler.parts, 4);
  EXPECT_EQ(model->options().dim, 64);
  options.enforce_caps = false;
  testing::internal::CaptureStderr();
  const PacoModel large(options);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(large->options().sampler.parts, 6);
  EXPECT_EQ(large->projection->weight.size(0), 128);
}

TEST(PacoModel, names_the_side_that_an_even_window_acts_with) {
  set_log_level(LogLevel::Warning);
  for (const Index window : {4, 5}) {
    PacoModelOptions options = small();
    options.sampler.window = window;
    testing::internal::CaptureStderr();
    const PacoModel model(options);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::ranges::count(log, '\n'), window == 4 ? 1 : 0) << log;
    EXPECT_EQ(log.find("a window of 4 acts as one of 5") != std::string::npos, window == 4) << log;
  }
}

// Squares in one of four colors, in noise.
TEST(PacoModel, learns_and_does_not_collapse) {
  at::manual_seed(3);
  const Index images = 16;
  const Tensor targets = at::arange(images, at::kLong).remainder(4);
  const auto view = [&] {
    const Tensor made = 0.3 * at::randn({images, 3, 32, 32});
    for (Index i = 0; i < images; ++i) {
      const Index row = i / 4 * 5, column = (i * 7) % 20;
      Tensor square = made[i].slice(1, row, row + 12).slice(2, column, column + 12);
      i % 4 < 3 ? square[i % 4] += 1.5 : square += 1.5;
    }
    return made;
  };
  PacoModel model(small(4));
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(3e-3));
  double first_weight = 0;
  PacoOutput out;
  for (Index step = 0; step < 60; ++step) {
    model->set_epoch(step / 10);
    optimizer.zero_grad();
    out = model->forward(view(), view(), targets);
    out.total.backward();
    optimizer.step();
    if (step == 0) first_weight = out.view1.weight.mean().item<double>();
  }
  EXPECT_LT(out.ce.item<double>(), 0.7 * std::log(4.0));
  EXPECT_GT(out.view1.weight.mean().item<double>(), 0.5 * first_weight);
  EXPECT_TRUE(out.logits.argmax(1).equal(targets));
}

TEST(PacoModel, refuses_by_name) {
  const auto refused = [](const PacoModelOptions& options) {
    return error_of([&] { PacoModel model(options); });
  };
  EXPECT_THAT(refused(small(1)), HasSubstr("at least 2 classes, got 1"));
  PacoModelOptions options = small();
  options.backbone.name = "cnn";
  EXPECT_THAT(refused(options), HasSubstr("a ResNet as backbone, got cnn"));
  options = small();
  options.lambda_pac = -1;
  EXPECT_THAT(refused(options), HasSubstr("finite weights of at least 0"));
  PacoModel model(small());
  const Tensor images = at::zeros({2, 3, 32, 32});
  EXPECT_THAT(error_of([&] { model->forward(images, {}, at::zeros({2}, at::kLong)); }),
              HasSubstr("two views with targets, got one"));
  EXPECT_THAT(error_of([&] { model->forward(images, images.slice(0, 0, 1)); }),
              HasSubstr("a second view of [2, 3, 32, 32]"));
}

}  // namespace
}  // namespace hone::paco
