// SPDX-License-Identifier: Apache-2.0
// The conversions of bf16.h against the processor's own.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "hone/core/bf16.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/philox.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hone {
namespace {

// Bits that exercise every exponent: random ones, and random ones pressed towards f16's range.
std::uint32_t random_bits(PhiloxStream& random) {
  const std::uint32_t bits = random();
  if (random.below(4) == 0) return bits;
  const std::uint32_t exponent = 127 - 30 + random.below(50);  // 2^-30 … 2^19
  const std::uint32_t cut = random.below(24);                  // makes ties likely
  return (bits & 0x80000000u) | (exponent << 23) | ((bits & 0x7fffffu) >> cut << cut);
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) std::uint16_t hardware_to_f16(float value) {
  return static_cast<std::uint16_t>(
      _mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT), 0));
}
__attribute__((target("f16c"))) float hardware_from_f16(std::uint16_t bits) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

TEST(Float16, agrees_with_the_processor) {
  if (!machine_has(Isa::Avx2)) GTEST_SKIP() << "no AVX2, which comes with F16C";
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    const float ours = f16_to_float(static_cast<std::uint16_t>(half));
    const float theirs = hardware_from_f16(static_cast<std::uint16_t>(half));
    if (std::isnan(theirs)) {
      ASSERT_TRUE(std::isnan(ours)) << half;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(ours), std::bit_cast<std::uint32_t>(theirs)) << half;
    }
  }
  PhiloxStream random(16);
  for (int i = 0; i < 2'000'000; ++i) {
    const float value = std::bit_cast<float>(random_bits(random));
    const std::uint16_t ours = float_to_f16(value), theirs = hardware_to_f16(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(f16_to_float(ours)));
      ASSERT_EQ(ours & 0x8000, theirs & 0x8000);
    } else {
      ASSERT_EQ(ours, theirs) << std::bit_cast<std::uint32_t>(value);
    }
  }
}
#endif

// The definition: the nearest multiple of the last place, computed in double.
TEST(BFloat16, narrows_to_the_nearest_value_ties_to_even) {
  PhiloxStream random(17);
  for (int i = 0; i < 500'000; ++i) {
    const float value = std::bit_cast<float>(random_bits(random));
    const std::uint16_t bits = float_to_bf16(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_float(bits)));
      continue;
    }
    if (!std::isfinite(bf16_to_float(bits))) {
      ASSERT_GE(std::abs(static_cast<double>(value)), 0x1.ffp127) << value;  // half past the last
      continue;
    }
    const auto low = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
    const double down = static_cast<double>(value) - bf16_to_float(low);
    const auto high = static_cast<std::uint16_t>(low + 1);
    const double up = static_cast<double>(bf16_to_float(high)) - value;
    const bool take_high =
        std::abs(up) < std::abs(down) || (std::abs(up) == std::abs(down) && (low & 1) != 0);
    ASSERT_EQ(bits, take_high ? high : low) << std::bit_cast<std::uint32_t>(value);
  }
}

TEST(Float16, zero_keeps_its_sign_and_the_smallest_values_round_to_even) {
  EXPECT_EQ(float_to_f16(-0.0f), 0x8000);
  EXPECT_EQ(float_to_f16(0x1p-25f), 0);                        // half of the least: to even
  EXPECT_EQ(float_to_f16(std::nextafter(0x1p-25f, 1.0f)), 1);  // just above half
  EXPECT_EQ(float_to_f16(0x1.8p-24f), 2);                      // one and a half: to even
  EXPECT_EQ(float_to_f16(std::nextafter(0x1p-14f, 0.0f)), 0x0400);
  EXPECT_EQ(float_to_f16(-0x1p-149f), 0x8000);
}

}  // namespace
}  // namespace hone
