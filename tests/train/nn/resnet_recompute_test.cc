// SPDX-License-Identifier: Apache-2.0
// ResNets whose blocks are computed again in the backward pass, against the same without.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "hone/train/amp/autocast_guard.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/nn/resnet.h"
#include "tests/support/error_of.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr Index kSide = 32, kImages = 8;

ResNet new_net(const char* name, Index every = 0) {
  const VisionSpec spec{
      .name = name, .width = 8, .channels = 3, .height = kSide, .image_width = kSide, .classes = 5};
  ResNet net(spec, 3);
  net->set_recompute_every(every);
  return net;
}

Tensor images_of(std::uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({kImages, 3, kSide, kSide});
}

// Everything that two micro-batches leave behind, by name.
std::vector<std::pair<std::string, Tensor>> after_two_batches(const char* name, Index every,
                                                              bool autocast) {
  ResNet net = new_net(name, every);
  std::vector<std::pair<std::string, Tensor>> out;
  for (const std::uint64_t batch : {1, 2}) {
    const Tensor images = images_of(batch);
    Tensor loss;
    {
      const amp::AutocastGuard guard(at::kCPU, at::kBFloat16, autocast);
      EXPECT_EQ(guard.report().active, autocast);
      loss = net->forward(images).to(at::kFloat).square().sum();
    }
    out.emplace_back("loss", loss.detach());
    loss.backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
  for (const auto& item : net->named_parameters()) {
    EXPECT_GT(item.value().grad().abs().max().item<float>(), 0) << item.key();
    out.emplace_back(item.key(), item.value().grad());
  }
  for (const auto& item : net->named_buffers()) {
    if (item.value().scalar_type() == at::kLong) {
      EXPECT_EQ(item.value().item<std::int64_t>(), 2) << item.key();
    }
    out.emplace_back(item.key(), item.value());
  }
  return out;
}

TEST(ResNetRecompute, keeps_the_bits_of_losses_gradients_and_running_statistics) {
  for (const char* name : {"resnet20", "resnet18", "resnet50"}) {
    for (const bool autocast : {false, true}) {
      const auto plain = after_two_batches(name, 0, autocast);
      for (const Index every : {1, 2}) {
        const auto again = after_two_batches(name, every, autocast);
        ASSERT_EQ(plain.size(), again.size());
        for (std::size_t i = 0; i < plain.size(); ++i) {
          EXPECT_EQ(plain[i].first, again[i].first);
          EXPECT_TRUE(plain[i].second.equal(again[i].second))
              << name << ' ' << plain[i].first << (autocast ? " in bf16, every " : ", every ")
              << every;
        }
      }
    }
  }
}

// The second computation normalizes as the first did, whatever the module's mode is by then.
TEST(ResNetRecompute, follows_the_mode_of_the_forward_pass) {
  for (const bool trains : {true, false}) {
    std::vector<Tensor> grads;
    for (const Index every : {0, 1}) {
      ResNet net = new_net("resnet20", every);
      net->forward(images_of(1));  // moves the running statistics from 0 and 1
      net->train(trains);
      const Tensor loss = net->forward(images_of(2)).square().sum();
      net->train(!trains);
      loss.backward();
      grads.push_back(net->named_parameters()["conv1.layer.weight"].grad());
      EXPECT_EQ(net->named_buffers()["layer3.2.bn2.num_batches_tracked"].item<std::int64_t>(),
                trains ? 2 : 1);
    }
    EXPECT_TRUE(grads[0].equal(grads[1])) << trains;
  }
}

TEST(ResNetRecompute, moves_running_statistics_once_without_gradients_and_in_repeated_passes) {
  ResNet net = new_net("resnet20", 1), plain = new_net("resnet20");
  {
    const torch::NoGradGuard no_grad;
    net->forward(images_of(1));
    plain->forward(images_of(1));
  }
  const Tensor loss = net->forward(images_of(2)).sum();
  loss.backward({}, /*retain_graph=*/true);
  loss.backward();
  plain->forward(images_of(2));
  const auto expected = plain->named_buffers();
  for (const auto& item : net->named_buffers()) {
    EXPECT_TRUE(item.value().equal(expected[item.key()])) << item.key();
  }
}

// Bytes that a forward and backward pass takes at most, above weights and gradients.
Index peak_of(const char* name, Index every) {
  ResNet net = new_net(name, every);
  const memory::MemoryMeter meter;
  const Tensor images = images_of(1);
  net->forward(images).sum().backward();  // makes the gradients
  const Index before = meter.use().current;
  meter.reset_peak();
  net->forward(images).sum().backward();
  EXPECT_EQ(meter.use().current, before);
  return meter.use().peak - before;
}

TEST(ResNetRecompute, lowers_the_peak) {
  for (const auto& [name, most] : {std::pair{"resnet20", 0.7}, {"resnet18", 0.95}}) {
    const auto plain = static_cast<double>(peak_of(name, 0)),
               again = static_cast<double>(peak_of(name, 1));
    std::printf("%s: %.2f of %.2f MB\n", name, again / 1e6, plain / 1e6);
    EXPECT_LE(again, most * plain) << name;
  }
}

TEST(ResNetRecompute, tells_whether_anything_changes) {
  ResNet net = new_net("resnet20");
  EXPECT_TRUE(net->set_recompute_every(1));
  EXPECT_FALSE(net->set_recompute_every(1));
  EXPECT_TRUE(net->set_recompute_every(0));
  EXPECT_NE(test::refusal([&] { net->set_recompute_every(-1); }), "");
  VisionNet mlp = make_vision_net({.name = "mlp"}, 1);
  EXPECT_FALSE(mlp->set_recompute_every(1));
}

}  // namespace
}  // namespace hone::nn
