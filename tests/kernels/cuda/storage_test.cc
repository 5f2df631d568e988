// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/cuda/storage.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace hone::kernels::cuda {
namespace {

template <class T>
std::uint16_t round_trip(std::uint16_t bits) {
  T back{};
  narrow(widen(T{bits}), back);
  return back.bits;
}

TEST(Storage, every_half_survives_the_way_through_float) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (std::isnan(widen(BF16{half}))) {
      EXPECT_TRUE(std::isnan(widen(BF16{round_trip<BF16>(half)})));
    } else {
      EXPECT_EQ(round_trip<BF16>(half), half);
    }
    if (std::isnan(widen(F16{half}))) {
      EXPECT_TRUE(std::isnan(widen(F16{round_trip<F16>(half)})));
    } else {
      EXPECT_EQ(round_trip<F16>(half), half);
    }
  }
}

TEST(Storage, ties_go_to_even_and_overflow_to_infinity) {
  BF16 b{};
  narrow(1.00390625f, b);  // halfway between 1 and the next bf16
  EXPECT_EQ(b.bits, 0x3f80);
  narrow(1.01171875f, b);  // halfway from an odd one
  EXPECT_EQ(b.bits, 0x3f82);
  F16 h{};
  narrow(65519.0f, h);
  EXPECT_EQ(widen(h), 65504.0f);
  narrow(65520.0f, h);
  EXPECT_TRUE(std::isinf(widen(h)));
}

TEST(Storage, packs_move_neighbors_and_nothing_else) {
  static_assert(sizeof(Pack<float, 4>) == 16 && alignof(Pack<float, 4>) == 16);
  static_assert(sizeof(Pack<BF16, 4>) == 8 && alignof(Pack<BF16, 4>) == 8);
  alignas(16) BF16 halves[12] = {};
  const float values[4] = {1, -2, 3, -4};
  store<4>(values, halves + 4);
  float read[4];
  load<4>(halves + 4, read);
  for (int l = 0; l < 4; ++l) EXPECT_EQ(read[l], values[l]);
  for (const int i : {0, 1, 2, 3, 8, 9, 10, 11}) EXPECT_EQ(halves[i].bits, 0) << i;
}

}  // namespace
}  // namespace hone::kernels::cuda
