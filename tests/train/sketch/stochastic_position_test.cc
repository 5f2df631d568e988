// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/stochastic_position.h"

#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <cmath>
#include <sstream>

#include "hone/train/sketch/counter.h"
#include "hone/train/sketch/linear_attention.h"
#include "tests/support/error_of.h"
#include "tests/train/sketch/attention_oracle.h"

namespace hone::nn {
namespace {

using hone::test::error_of;
using test::randn;
using test::relative_error;
using torch::Tensor;

constexpr double kPi = 3.14159265358979323846;

StochasticPosition make(Index heads, Index channels, Index sines, Index realizations,
                        std::uint64_t seed = 1) {
  StochasticPosition position(StochasticPositionOptions{.heads = heads,
                                                        .channels = channels,
                                                        .sines = sines,
                                                        .realizations = realizations,
                                                        .seed = seed});
  position->to(torch::kDouble);
  return position;
}

// Frequencies from sigmoid(-4) would hardly turn within a few tokens.
void spread_freqs(StochasticPosition& position) {
  const torch::NoGradGuard no_grad;
  position->freqs.copy_(torch::linspace(-3, 3, position->freqs.numel()).view_as(position->freqs));
}

// q' or k' by its definition, one number at a time.
Tensor by_definition(const StochasticPosition& position, const Tensor& x, bool is_query,
                     Index first) {
  const auto& options = position->options;
  const Tensor out =
      torch::zeros({x.size(0), x.size(1), options.heads, options.realizations}, torch::kDouble);
  const auto number = [](const Tensor& tensor, at::ArrayRef<Index> at) {
    Tensor element = tensor;
    for (const Index i : at) element = element[i];
    return element.item<double>();
  };
  for (Index t = 0; t < x.size(1); ++t) {
    for (Index h = 0; h < options.heads; ++h) {
      for (Index r = 0; r < options.realizations; ++r) {
        for (Index d = 0; d < options.channels; ++d) {
          double sum = 0;
          for (Index s = 0; s < options.sines; ++s) {
            const double f = 0.5 / (1 + std::exp(-number(position->freqs, {h, d, s})));
            double angle = 2 * kPi * f * static_cast<double>(first + t);
            if (is_query) angle += number(position->phases, {h, d, s});
            const double gain = std::log1p(std::exp(number(position->scales, {h, d, s})));
            sum += gain * (std::cos(angle) * number(position->noise, {h, d, s, r}) +
                           std::sin(angle) * number(position->noise, {h, d, options.sines + s, r}));
          }
          const double scale =
              std::pow(static_cast<double>(options.realizations * options.channels), -0.25);
          for (Index b = 0; b < x.size(0); ++b) {
            out[b][t][h][r] += sum * scale * x[b][t][h][d];
          }
        }
      }
    }
  }
  return out;
}

TEST(StochasticPosition, is_its_definition) {
  torch::manual_seed(2);
  StochasticPosition position = make(2, 3, 2, 4);
  spread_freqs(position);
  const Tensor q = randn({2, 5, 2, 3}), k = randn({2, 5, 2, 3});
  for (const Index first : {0, 11}) {
    const auto [by_q, by_k] = position->forward(q, k, first);
    EXPECT_LE(relative_error(by_q, by_definition(position, q, true, first)), 1e-12);
    EXPECT_LE(relative_error(by_k, by_definition(position, k, false, first)), 1e-12);
  }
}

TEST(StochasticPosition, starts_with_the_published_distribution) {
  StochasticPosition position(StochasticPositionOptions{
      .heads = 8, .channels = 64, .sines = 10, .realizations = 16, .seed = 3});
  const double n = 8 * 64 * 10;
  EXPECT_NEAR(position->freqs.mean().item<double>(), -4, 5 / std::sqrt(n));
  EXPECT_NEAR(position->phases.mean().item<double>(), 0, 5 / std::sqrt(n));
  EXPECT_NEAR(position->phases.var().item<double>(), 1, 5 * std::sqrt(2 / n));
  EXPECT_LE((position->scales.norm(2, {2}) - 2).abs().max().item<double>(), 1e-5);
  EXPECT_FALSE(position->noise.requires_grad());
}

// The mean is of 40 times 400 draws of noise, for each pair of positions.
TEST(StochasticPosition, products_have_the_mean_of_their_relative_position) {
  torch::manual_seed(4);
  const Index dim = 4, tokens = 6;
  StochasticPosition position = make(1, dim, 2, 400);
  spread_freqs(position);
  const Tensor one_q = randn({dim}), one_k = randn({dim});
  const auto repeat = [&](const Tensor& x) {
    return x.view({1, 1, 1, dim}).expand({1, tokens, 1, dim});
  };
  std::vector<Tensor> drawn;
  for (int i = 0; i < 40; ++i) {
    const torch::NoGradGuard no_grad;
    const auto [q, k] = position->forward(repeat(one_q), repeat(one_k));
    drawn.push_back(at::matmul(q.select(2, 0), k.select(2, 0).transpose(1, 2))[0] / std::sqrt(400));
    position->resample();
  }
  const Tensor all = at::stack(drawn), mean = all.mean(0), error = all.std(0) / std::sqrt(40.0);
  const torch::NoGradGuard no_grad;
  const Tensor gain = at::softplus(position->scales[0]), f = position->freqs[0].sigmoid() / 2;
  for (Index i = 0; i < tokens; ++i) {
    for (Index j = 0; j < tokens; ++j) {  // depends on i - j alone
      const Tensor p =
          (gain.square() * (f * (2 * kPi * static_cast<double>(i - j)) + position->phases[0]).cos())
              .sum(1);
      const double want = (one_q * one_k * p).sum().item<double>() / std::sqrt(4.0);
      EXPECT_NEAR(mean[i][j].item<double>(), want, 4.5 * error[i][j].item<double>())
          << i << " " << j;
    }
  }
}

TEST(StochasticPosition, gradients_are_those_of_differences) {
  torch::manual_seed(5);
  StochasticPosition position = make(2, 3, 2, 5);
  spread_freqs(position);
  Tensor q = randn({1, 4, 2, 3}).requires_grad_(), k = randn({1, 4, 2, 3}).requires_grad_();
  const auto loss = [&] {
    const auto [by_q, by_k] = position->forward(q, k);
    return (by_q * by_k).sum() + by_q.square().sum();
  };
  loss().backward();
  for (Tensor x : {q, k, position->freqs, position->phases, position->scales}) {
    const Tensor grad = x.grad().view(-1);
    for (Index i = 0; i < x.numel(); i += 5) {
      const torch::NoGradGuard no_grad;
      const Tensor element = x.detach().view(-1)[i];
      const double step = 1e-5;
      element.add_(step);
      const double above = loss().item<double>();
      element.sub_(2 * step);
      const double below = loss().item<double>();
      element.add_(step);
      EXPECT_NEAR(grad[i].item<double>(), (above - below) / (2 * step), 1e-6);
    }
  }
}

TEST(StochasticPosition, noise_is_resampled_and_saved_with_its_place) {
  StochasticPosition position = make(1, 2, 2, 3), other = make(1, 2, 2, 3);
  const Tensor first = position->noise.clone();
  position->resample();
  EXPECT_FALSE(first.equal(position->noise));
  std::stringstream file;
  torch::save(position, file);
  torch::load(other, file);
  EXPECT_TRUE(other->noise.equal(position->noise));
  other->resample();
  position->resample();
  EXPECT_TRUE(other->noise.equal(position->noise));
  EXPECT_EQ(counted(other->draws), 3u);
}

TEST(StochasticPosition, takes_no_tokens_and_names_what_is_wrong) {
  StochasticPosition position = make(2, 3, 2, 4);
  const Tensor none = torch::zeros({1, 0, 2, 3}, torch::kDouble);
  EXPECT_EQ(position->forward(none, none).first.sizes(), (std::vector<Index>{1, 0, 2, 4}));
  const Tensor wrong = torch::zeros({1, 5, 2, 4}, torch::kDouble);
  EXPECT_EQ(error_of([&] { position->forward(wrong, wrong); }),
            "[StochasticPosition] expected [batch, tokens, 2, 3], got [1, 5, 2, 4]");
  EXPECT_EQ(error_of([] { make(2, 3, 0, 4); }),
            "[StochasticPosition] expected heads, channels, sines and realizations of at least 1, "
            "got 2, 3, 0 and 4");
}

}  // namespace
}  // namespace hone::nn
