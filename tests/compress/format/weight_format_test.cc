// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/format/weight_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hone/compress/method/round.h"
#include "hone/core/philox.h"
#include "tests/compress/normals.h"
#include "tests/support/error_of.h"

namespace hone::compress {
namespace {

using hone::test::refusal;
using testing::HasSubstr;

constexpr const char* kFormats[] = {
    "q8_0",     "q5_0",         "q5_1",        "q4_0",          "q4_1",         "iq4_nl",
    "q6_k",     "q5_k",         "q4_k",        "q3_k",          "int8:row",     "int4:g32",
    "int3:g64", "int2:g16:sym", "int5:tensor", "int4:row:asym", "log4:g32",     "log3:row",
    "log8:row", "log2:g32",     "int6:g48",    "int4:g32:bf16", "int7:row:asym"};

// What fit() promises is what the stored bytes decode to, for every level and sub-block.
TEST(WeightFormat, stored_codes_decode_to_the_fitted_levels) {
  const Index rows = 3, cols = 512;
  const std::vector<float> values = normals(rows * cols, 3);
  PhiloxStream random(4);
  for (const char* name : kFormats) {
    const auto format = parse_weight_format(name);
    const WeightMatrix matrix{values, rows, cols, name};
    const auto scales = fit_matrix(*format, matrix, {}, {}, serial_executor());
    EncodedMatrix out = format->allocate(rows, cols);
    std::vector<std::vector<std::uint8_t>> codes;
    for (Index row = 0; row < rows; ++row) {
      codes.emplace_back();
      for (Index col = 0; col < cols; ++col) {
        const auto levels = static_cast<std::uint32_t>(format->levels().size());
        codes.back().push_back(static_cast<std::uint8_t>(random.below(levels)));
      }
      store_row(*format, scales, row, codes.back(), out);
    }
    std::vector<float> decoded(static_cast<std::size_t>(cols));
    for (Index row = 0; row < rows; ++row) {
      decode_row(out.stored, row, decoded);
      for (Index col = 0; col < cols; ++col) {
        const Affine& affine = affine_at(*format, scales, cols, row, col);
        const std::uint8_t code =
            codes[static_cast<std::size_t>(row)][static_cast<std::size_t>(col)];
        const float want = format->decode(affine, code);
        ASSERT_NEAR(decoded[static_cast<std::size_t>(col)], want,
                    1e-6f * std::abs(affine.scale) * 256)
            << name << " row " << row << " column " << col;
        ASSERT_EQ(format->encode(affine, want),
                  affine.scale == 0 ? format->encode(affine, 0) : code)
            << name << " code " << int{code};
      }
    }
    EXPECT_NEAR(static_cast<double>(out.stored.stored_bytes()) * 8,
                format->bits_per_weight(rows, cols) * static_cast<double>(rows * cols), 1e-6)
        << name;
  }
}

TEST(WeightFormat, searching_scales_never_raises_the_error_and_importance_moves_it) {
  const Index rows = 4, cols = 256;
  const std::vector<float> values = normals(rows * cols, 5);
  std::vector<float> importance(static_cast<std::size_t>(cols), 1e-3f);
  for (std::size_t i = 0; i < importance.size(); i += 5) importance[i] = 10;
  for (const char* name : kFormats) {
    const auto format = parse_weight_format(name);
    const WeightMatrix matrix{values, rows, cols, name};
    const auto error = [&](std::span<const float> weights, const FitOptions& options) {
      const auto scales = fit_matrix(*format, matrix, weights, options, serial_executor());
      const EncodedMatrix out = round_matrix(*format, matrix, scales, serial_executor());
      std::vector<float> decoded(values.size());
      decode(out.stored, decoded);
      std::pair<double, double> sums;  // plain, weighted
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double squared = std::pow(double{values[i]} - double{decoded[i]}, 2);
        sums.first += squared;
        sums.second += squared * importance[i % static_cast<std::size_t>(cols)];
      }
      return sums;
    };
    const auto plain = error({}, {.clip = false}), searched = error({}, {}),
               weighted = error(importance, {});
    EXPECT_LE(searched.first, plain.first * 1.02) << name;
    EXPECT_LE(weighted.second, searched.second * 1.02) << name;
    if (format->levels().size() <= 16) {
      EXPECT_LT(weighted.second, 0.999 * searched.second) << name;
    }
  }
}

// Upper bounds that follow from the number of levels per block; the search is near them.
TEST(WeightFormat, reaches_the_error_that_its_bits_allow_on_a_standard_normal) {
  const Index rows = 64, cols = 1024;
  const std::vector<float> values = normals(rows * cols, 6);
  const struct {
    const char* name;
    double most;
  } cases[] = {{"q8_0", 6e-5},     {"q6_k", 8e-4},   {"q5_0", 3e-3},      {"q5_1", 2.6e-3},
               {"q5_k", 2.6e-3},   {"q4_0", 1.1e-2}, {"q4_1", 9.5e-3},    {"q4_k", 1e-2},
               {"iq4_nl", 9.5e-3}, {"q3_k", 4e-2},   {"log4:g32", 3.8e-2}};
  for (const auto& [name, most] : cases) {
    const auto format = parse_weight_format(name);
    const WeightMatrix matrix{values, rows, cols, name};
    const auto scales = fit_matrix(*format, matrix, {}, {}, serial_executor());
    const EncodedMatrix out = round_matrix(*format, matrix, scales, serial_executor());
    EXPECT_LE(std::pow(10, -signal_to_noise_db(matrix, out.stored) / 10), most) << name;
    const double entropy = code_entropy(*format, matrix, scales, out.stored);
    EXPECT_GT(entropy, 1) << name;
    EXPECT_LE(entropy, std::log2(static_cast<double>(format->levels().size()))) << name;
  }
}

TEST(WeightFormat, zero_constant_and_extreme_blocks_decode_sensibly) {
  for (const char* name : kFormats) {
    for (const float constant : {0.0f, 0.5f, -0.5f, 1e-6f, 60000.0f}) {
      const std::vector<float> values(512, constant);
      const WeightMatrix matrix{values, 2, 256, name};
      const auto format = format_for(parse_weight_format(name), matrix);
      const auto scales = fit_matrix(*format, matrix, {}, {}, serial_executor());
      const EncodedMatrix out = round_matrix(*format, matrix, scales, serial_executor());
      std::vector<float> decoded(512);
      decode(out.stored, decoded);
      for (const float value : decoded)
        ASSERT_NEAR(value, constant, std::max(2e-2f * std::abs(constant), 1e-6f)) << name;
    }
  }
}

TEST(WeightFormat, refuses_what_it_cannot_represent) {
  std::vector<float> values(64, 0.1f);
  values[37] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(
                  [&] {
                    format_for(parse_weight_format("q4_0"), {values, 2, 32, "w"});
                  },
                  ErrorCategory::CorruptFile),
              HasSubstr("element 37"));
  values[37] = 1e9f;
  EXPECT_THAT(refusal(
                  [&] {
                    format_for(parse_weight_format("q4_0"), {values, 2, 32, "w"});
                  },
                  ErrorCategory::CorruptFile),
              HasSubstr("q4_0"));
  EXPECT_EQ(format_for(parse_weight_format("int4:g32"), {values, 2, 32, "w"})->name(),
            "int4:g32:asym:f32");
  values.assign(64, 0.1f);
  EXPECT_THAT(refusal([&] {
                format_for(parse_weight_format("q4_k"), {values, 2, 32, "w"});
              }),
              HasSubstr("q4_k"));
  for (const char* name :
       {"", "q4", "q4_2", "float", "log1:row", "log9:row", "log4:g32:asym", "int4", "int4:g7"}) {
    EXPECT_THAT(refusal([&] { parse_weight_format(name); }), HasSubstr("q4_0")) << name;
  }
}

}  // namespace
}  // namespace hone::compress
