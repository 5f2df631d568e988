// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"
#include "tests/compress/normals.h"

namespace hone::compress {
namespace {

std::vector<float> decoded(const EncodedMatrix& matrix) {
  std::vector<float> out(static_cast<std::size_t>(matrix.stored.rows * matrix.stored.cols));
  decode(matrix.stored, out);
  return out;
}

double mean_squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return sum / static_cast<double>(a.size());
}

EncodedMatrix quantize(const std::vector<float>& values, Index rows, Index cols, const char* spec,
                       bool clip = true, Executor& executor = serial_executor()) {
  const WeightMatrix matrix{values, rows, cols, "w"};
  const auto format = format_for(parse_weight_format(spec), matrix);
  return round_matrix(*format, matrix, fit_matrix(*format, matrix, {}, {.clip = clip}, executor),
                      executor);
}

const QuantSpec& spec_of(const EncodedMatrix& matrix) { return matrix.stored.quant.spec; }

// The best narrow symmetric grid for a standard normal.
TEST(Round, reaches_the_derived_error_on_a_standard_normal) {
  const auto values = normals(1 << 20, 3);
  const struct {
    const char* spec;
    double error;
  } cases[] = {{"int2:row:sym", 0.1902},
               {"int3:row:sym", 0.04686},
               {"int4:row:sym", 0.01289},
               {"int6:row:sym", 0.001069},
               {"int8:row:sym", 8.83e-5}};
  for (const auto& [spec, error] : cases) {
    const EncodedMatrix matrix = quantize(values, 1, 1 << 20, spec);
    EXPECT_NEAR(mean_squared_error(values, decoded(matrix)) / error, 1, 0.02) << spec;
  }
}

TEST(Round, plain_rounding_keeps_every_element_within_its_bound) {
  const auto values = normals(64 * 200, 5);
  for (const char* spec : {"int8:row:sym", "int4:g32:sym", "int4:g32:asym", "int3:g16:asym",
                           "int2:g64:asym", "int5:g48:sym"}) {
    const EncodedMatrix matrix = quantize(values, 64, 200, spec, false);
    const auto out = decoded(matrix);
    const Index groups = spec_of(matrix).groups_per_row(200),
                group = spec_of(matrix).group_size(200);
    for (Index i = 0; i < 64 * 200; ++i) {
      const Index at = i / 200 * groups + i % 200 / group;
      const float scale = spec_of(matrix).scale_dtype == Dtype::Float16
                              ? f16_to_float(matrix.scales.as<std::uint16_t>()[at])
                              : matrix.scales.as<float>()[at];
      const auto row = values.begin() + i / 200 * 200;
      const Index first = i % 200 / group * group;
      const auto [low, high] =
          std::minmax_element(row + first, row + std::min<Index>(first + group, 200));
      const float down = std::min(*low, 0.0f), up = std::max(*high, 0.0f);
      const int bits = spec_of(matrix).bits;
      const float plain = spec_of(matrix).symmetric
                              ? std::max(-down, up) / static_cast<float>((1 << (bits - 1)) - 1)
                              : (up - down) / static_cast<float>((1 << bits) - 1);
      ASSERT_NEAR(scale, plain, 1.1e-3f * plain) << spec;  // an f16 scale is rounded up
      const float bound = spec_of(matrix).symmetric ? scale * 0.5001f : scale * 1.0001f;
      ASSERT_LE(std::abs(values[static_cast<std::size_t>(i)] - out[static_cast<std::size_t>(i)]),
                bound)
          << spec << " element " << i;
    }
  }
}

TEST(Round, clip_search_is_never_worse_than_plain_rounding) {
  const auto values = normals(32 * 256, 7);
  for (const char* spec : {"int8:row", "int4:g32", "int4:g128:sym", "int3:g64", "int2:g16"}) {
    const double plain =
        mean_squared_error(values, decoded(quantize(values, 32, 256, spec, false)));
    const double clipped = mean_squared_error(values, decoded(quantize(values, 32, 256, spec)));
    EXPECT_LE(clipped, plain * (1 + 1e-6)) << spec;
  }
}

TEST(Round, uniform_noise_has_variance_of_a_twelfth) {
  PhiloxStream random(11);
  std::vector<float> values(1 << 20);
  for (float& value : values) value = 2 * random.uniform() - 1;
  const EncodedMatrix matrix = quantize(values, 1, 1 << 20, "int6:row:sym", false);
  const double step = matrix.scales.as<float>()[0];
  EXPECT_NEAR(mean_squared_error(values, decoded(matrix)) / (step * step / 12), 1, 0.01);
}

TEST(Round, constant_zero_and_extreme_groups_decode_sensibly) {
  for (const char* spec : {"int4:g32:asym", "int4:g32:sym", "int8:row"}) {
    for (const float constant : {0.0f, 0.5f, -0.5f, 3e-7f, -3e-7f, 60000.0f, 1e30f}) {
      const std::vector<float> values(64, constant);
      const auto out = decoded(quantize(values, 2, 32, spec));
      for (const float value : out) EXPECT_NEAR(value, constant, std::abs(constant) * 1e-3) << spec;
    }
  }
}

TEST(Round, tiny_scales_make_the_matrix_store_float_scales) {
  std::vector<float> values(64, 1e-5f);
  EXPECT_EQ(quantize(values, 2, 32, "int4:g32").stored.quant.spec.scale_dtype, Dtype::Float32);
  values.assign(64, 0.3f);
  EXPECT_EQ(quantize(values, 2, 32, "int4:g32").stored.quant.spec.scale_dtype, Dtype::Float16);
}

TEST(Round, a_value_that_is_not_finite_is_named) {
  std::vector<float> values(64, 0.1f);
  values[37] = std::numeric_limits<float>::quiet_NaN();
  try {
    quantize(values, 2, 32, "int8:row");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::CorruptFile);
    EXPECT_NE(std::string(error.what()).find("element 37"), std::string::npos) << error.what();
  }
}

TEST(Round, bytes_and_bits_do_not_depend_on_threads) {
  const auto values = normals(53 * 100, 13);
  const EncodedMatrix one = quantize(values, 53, 100, "int4:g32");
  for (const int threads : {2, 7}) {
    ThreadPool pool(threads);
    const EncodedMatrix many = quantize(values, 53, 100, "int4:g32", true, pool);
    ASSERT_EQ(one.codes.bytes(), many.codes.bytes());
    EXPECT_EQ(std::memcmp(one.codes.data(), many.codes.data(), one.codes.span().size()), 0);
    EXPECT_EQ(std::memcmp(one.scales.data(), many.scales.data(), one.scales.span().size()), 0);
    EXPECT_EQ(std::memcmp(one.zeros.data(), many.zeros.data(), one.zeros.span().size()), 0);
  }
  EXPECT_EQ(one.stored.stored_bytes(),
            static_cast<Index>(spec_of(one).bits_per_weight(53, 100) * 53 * 100 / 8 + 0.5));
}

TEST(SignalToNoise, is_six_decibels_a_bit_plus_the_formula) {
  const auto values = normals(1 << 20, 17);
  const WeightMatrix matrix{values, 1, 1 << 20, "w"};
  const double eight = signal_to_noise_db(matrix, quantize(values, 1, 1 << 20, "int8:row").stored);
  EXPECT_NEAR(eight, -10 * std::log10(8.83e-5), 0.1);  // 2 % of the derived error
  const std::vector<float> zeros(32, 0.0f);
  EXPECT_TRUE(std::isinf(
      signal_to_noise_db({zeros, 1, 32, "w"}, quantize(zeros, 1, 32, "int8:row").stored)));
}

// 1000 weights of sizes 1, 2, … 1000: the scale of 8 bits represents the chosen one.
TEST(Round, clips_at_a_percentile) {
  std::vector<float> values;
  for (int i = 1; i <= 1000; ++i) values.push_back(static_cast<float>(i % 2 == 0 ? i : -i));
  const WeightMatrix matrix{values, 1, 1000, "w"};
  const auto format = parse_weight_format("int8:row");
  for (const double percentile : {50.0, 90.0, 99.9, 100.0}) {
    const auto scales =
        fit_matrix(*format, matrix, {}, {.percentile = percentile}, serial_executor());
    const double limit = 1 + std::floor(percentile / 100 * 999);
    EXPECT_NEAR(scales[0].d, limit / 127, 1e-4 * limit);
    const auto out = decoded(round_matrix(*format, matrix, scales, serial_executor()));
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_LE(std::abs(out[i]), limit * 1.0001) << percentile;
  }
}

TEST(Round, stores_new_values_in_the_type_of_a_matrix) {
  const auto values = normals(6 * 64, 3), others = normals(4 * 32, 4);
  const WeightMatrix smaller{others, 4, 32, "w"};
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::BFloat16}) {
    StoredMatrix like;
    like.dtype = dtype;
    const EncodedMatrix out = store_like(like, smaller, serial_executor());
    EXPECT_EQ(out.stored.dtype, dtype);
    const auto back = decoded(out);
    for (std::size_t i = 0; i < back.size(); ++i) {
      const float want = dtype == Dtype::Float32   ? others[i]
                         : dtype == Dtype::Float16 ? f16_to_float(float_to_f16(others[i]))
                                                   : bf16_to_float(float_to_bf16(others[i]));
      EXPECT_EQ(back[i], want);
    }
  }
  for (const char* name : {"int4:g32", "int8:row", "q4_0", "q8_0"}) {
    const EncodedMatrix like = quantize(values, 6, 64, name);
    const EncodedMatrix out = store_like(like.stored, smaller, serial_executor());
    EXPECT_EQ(out.stored.rows, 4);
    EXPECT_EQ(out.stored.layout, like.stored.layout);
    EXPECT_EQ(decoded(out), decoded(quantize(others, 4, 32, name))) << name;
  }
  StoredMatrix half;
  half.dtype = Dtype::Float16;
  const std::vector<float> huge{1e6f};
  EXPECT_THROW(store_like(half, {huge, 1, 1, "w"}, serial_executor()), Error);
}

}  // namespace
}  // namespace hone::compress
