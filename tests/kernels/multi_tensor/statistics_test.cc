// SPDX-License-Identifier: Apache-2.0
// The sums of pass 1: exact on whole numbers, everywhere sensitive, and blind to nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/kernels/multi_tensor/schedule/statistics.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kInfinity;
using test::kNan;
using Values = std::vector<float>;

constexpr Statistics kKinds[] = {Statistics::Norm, Statistics::Torque, Statistics::TorqueWithDecay};
constexpr Index kLengths[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 255, 1023, 16'384};

struct Chunks {
  Values param, grad, momentum;
  ChunkOperands operands(Index offset, Index length) {
    return {.param = param.data() + offset,
            .grad = grad.data() + offset,
            .momentum = momentum.data() + offset,
            .length = length};
  }
};

Chunks integers(Index length) {
  return {test::random_integers(length, 1, 1000), test::random_integers(length, 2, 1000),
          test::random_integers(length, 3, 1000)};
}

std::vector<double> gathered(Statistics kind, const ChunkOperands& chunk) {
  std::vector<double> sums(static_cast<std::size_t>(count_sums(kind)), -1.0);
  choose_gather(kind)(chunk, sums.data());
  return sums;
}

std::vector<double> plain(Statistics kind, const ChunkOperands& chunk) {
  std::vector<double> sums(static_cast<std::size_t>(count_sums(kind)), -1.0);
  gather_reference(kind, chunk, sums.data());
  return sums;
}

// Products of whole numbers below 2^10 and their sums below 2^53 are exact in any order.
TEST(Statistics, whole_numbers_add_up_exactly_at_every_length_and_alignment) {
  for (const Statistics kind : kKinds) {
    for (const Index length : kLengths) {
      Chunks chunks = integers(length + 3);
      for (Index offset = 0; offset <= 3; ++offset) {
        const ChunkOperands chunk = chunks.operands(offset, length);
        EXPECT_EQ(gathered(kind, chunk), plain(kind, chunk)) << length << " at " << offset;
      }
    }
  }
}

TEST(Statistics, each_sum_is_the_product_its_name_says) {
  Chunks chunks{{5}, {3}, {2}};
  EXPECT_THAT(gathered(Statistics::Norm, chunks.operands(0, 1)), testing::ElementsAre(9));
  EXPECT_THAT(gathered(Statistics::Torque, chunks.operands(0, 1)), testing::ElementsAre(9, 6, 4));
  EXPECT_THAT(gathered(Statistics::TorqueWithDecay, chunks.operands(0, 1)),
              testing::ElementsAre(9, 6, 4, 10, 15, 25));
}

TEST(Statistics, a_single_element_counts_wherever_it_stands) {
  for (const Index length : {1, 5, 16, 31, 70}) {
    for (Index at = 0; at < length; ++at) {
      const auto size = static_cast<std::size_t>(length);
      Chunks chunks{Values(size, 0.0f), Values(size, 0.0f), Values(size, 0.0f)};
      chunks.param[static_cast<std::size_t>(at)] = 7;
      chunks.grad[static_cast<std::size_t>(at)] = -2;
      chunks.momentum[static_cast<std::size_t>(at)] = 3;
      ASSERT_THAT(gathered(Statistics::TorqueWithDecay, chunks.operands(0, length)),
                  testing::ElementsAre(4, -6, 9, 21, -14, 49))
          << at << " of " << length;
    }
  }
}

// A sum in f32 would lose every 1 beside 2^60.
TEST(Statistics, sums_in_double_and_keeps_small_beside_large) {
  Values grad(4096, 1.0f);
  grad[17] = 0x1p20f;
  const ChunkOperands chunk{.grad = grad.data(), .length = 4096};
  EXPECT_EQ(gathered(Statistics::Norm, chunk)[0], 0x1p40 + 4095);
}

TEST(Statistics, the_square_sum_is_not_finite_exactly_when_a_gradient_is_not) {
  for (const Statistics kind : kKinds) {
    for (const Index length : {1, 9, 33, 200}) {
      const auto size = static_cast<std::size_t>(length);
      Chunks chunks{Values(size, 1.0f), Values(size, 3.4e38f), Values(size, 1.0f)};
      EXPECT_TRUE(std::isfinite(gathered(kind, chunks.operands(0, length))[0])) << "huge is finite";
      for (Index at = 0; at < length; ++at) {
        for (const float bad : {kNan, kInfinity, -kInfinity}) {
          float& value = chunks.grad[static_cast<std::size_t>(at)];
          const float good = std::exchange(value, bad);
          ASSERT_FALSE(std::isfinite(gathered(kind, chunks.operands(0, length))[0]))
              << bad << " at " << at << " of " << length;
          value = good;
        }
      }
    }
  }
}

TEST(Statistics, limited_gradients_are_those_clipped_before) {
  for (const Statistics kind : {Statistics::Torque, Statistics::TorqueWithDecay}) {
    for (const Index length : kLengths) {
      Chunks chunks = integers(length + 3);
      Chunks clipped = chunks;
      for (float& g : clipped.grad) g = std::clamp(g, -300.0f, 300.0f);
      for (Index offset = 0; offset <= 3; ++offset) {
        ChunkOperands chunk = chunks.operands(offset, length);
        chunk.grad_limit = 300;
        std::vector<double> sums(static_cast<std::size_t>(count_sums(kind)), -1.0);
        choose_gather(kind, /*limited=*/true)(chunk, sums.data());
        EXPECT_EQ(sums, plain(kind, clipped.operands(offset, length))) << length;
        EXPECT_EQ(sums, plain(kind, chunk)) << length;
      }
    }
    Values ones(40, 1.0f), grad = ones;
    grad[39] = kNan;
    double sums[6];
    choose_gather(kind, true)({.param = ones.data(),
                               .grad = grad.data(),
                               .momentum = ones.data(),
                               .length = 40,
                               .grad_limit = 0.5f},
                              sums);
    EXPECT_TRUE(std::isnan(sums[0])) << "NaN stays NaN";
  }
}

TEST(Statistics, denormal_gradients_are_not_flushed) {
  Values grad(40, 0.0f);
  for (float& value : grad) value = 1e-40f;
  const double square = static_cast<double>(1e-40f) * static_cast<double>(1e-40f);
  EXPECT_NEAR(gathered(Statistics::Norm, {.grad = grad.data(), .length = 40})[0] / (40 * square), 1,
              1e-12);
}

TEST(Statistics, reads_up_to_the_page_and_no_further) {
  for (const Index length : {1, 7, 8, 17, 33, 1000}) {
    const Values values = test::random_values(length, 5);
    const test::GuardedFloats param(values), grad(values), momentum(values);
    const ChunkOperands chunk{
        .param = param.data(), .grad = grad.data(), .momentum = momentum.data(), .length = length};
    const auto sums = gathered(Statistics::TorqueWithDecay, chunk);
    for (const double sum : sums) EXPECT_EQ(sum, sums[0]) << "all slots hold the same";
  }
}

TEST(Statistics, nothing_to_gather_has_no_function) {
  EXPECT_EQ(count_sums(Statistics::None), 0);
  EXPECT_THAT(test::error_of([] { choose_gather(Statistics::None); }),
              testing::HasSubstr("[multi_tensor statistics] expected something to gather"));
}

}  // namespace
}  // namespace hone::kernels
