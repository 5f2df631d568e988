// SPDX-License-Identifier: Apache-2.0
#include "hone/core/philox.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32-10).
TEST(Philox, matches_published_known_answers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}),
            (PhiloxBlock{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox(0xffffffffffffffffu, {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}),
            (PhiloxBlock{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox(0x299f31d0a4093822u, {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}),
            (PhiloxBlock{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(PhiloxStream, resumes_at_a_saved_position) {
  PhiloxStream stream(7, 3);
  for (int i = 0; i < 5; ++i) stream();
  PhiloxStream resumed(7, 3);
  resumed.seek(stream.position());
  for (int i = 0; i < 9; ++i) EXPECT_EQ(stream(), resumed());
}

TEST(PhiloxStream, below_is_uniform) {
  PhiloxStream stream(1);
  std::array<int, 7> counts{};
  constexpr int kDraws = 70000;
  for (int i = 0; i < kDraws; ++i) ++counts[stream.below(7)];
  double chi2 = 0;
  for (int count : counts) chi2 += (count - 1e4) * (count - 1e4) / 1e4;
  EXPECT_LT(chi2, 38.3);  // 6 degrees of freedom, error probability 1e-6
}

}  // namespace
}  // namespace hone
