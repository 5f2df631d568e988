// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/round_clip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"

namespace hone::compress {
namespace {

std::vector<float> normals(Index count, std::uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& value : out) {
    value = static_cast<float>(std::sqrt(-2 * std::log(random.uniform_double())) *
                               std::cos(2 * std::numbers::pi * random.uniform_double()));
  }
  return out;
}

std::vector<float> decoded(const QuantMatrix& matrix) {
  StoredMatrix stored;
  stored.layout = WeightLayout::Canonical;
  stored.rows = matrix.rows;
  stored.cols = matrix.cols;
  stored.quant = matrix.view();
  std::vector<float> out(static_cast<std::size_t>(matrix.rows * matrix.cols));
  decode(stored, out);
  return out;
}

double mean_squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return sum / static_cast<double>(a.size());
}

QuantMatrix quantize(const std::vector<float>& values, Index rows, Index cols, const char* spec,
                     bool clip = true, Executor& executor = serial_executor()) {
  return round_clip(values, rows, cols, parse_quant_spec(spec), {.clip = clip}, executor, "w");
}

// compression.md 2.1: best narrow symmetric grid for a standard normal, derived there.
TEST(RoundClip, reaches_the_derived_error_on_a_standard_normal) {
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
    const QuantMatrix matrix = quantize(values, 1, 1 << 20, spec);
    EXPECT_NEAR(mean_squared_error(values, decoded(matrix)) / error, 1, 0.02) << spec;
  }
}

TEST(RoundClip, plain_rounding_keeps_every_element_within_its_bound) {
  const auto values = normals(64 * 200, 5);
  for (const char* spec : {"int8:row:sym", "int4:g32:sym", "int4:g32:asym", "int3:g16:asym",
                           "int2:g64:asym", "int5:g48:sym"}) {
    const QuantMatrix matrix = quantize(values, 64, 200, spec, false);
    const auto out = decoded(matrix);
    const Index groups = matrix.spec.groups_per_row(200), group = matrix.spec.group_size(200);
    for (Index i = 0; i < 64 * 200; ++i) {
      const Index at = i / 200 * groups + i % 200 / group;
      const float scale = matrix.spec.scale_dtype == Dtype::Float16
                              ? f16_to_float(matrix.scales.as<std::uint16_t>()[at])
                              : matrix.scales.as<float>()[at];
      const auto row = values.begin() + i / 200 * 200;
      const Index first = i % 200 / group * group;
      const auto [low, high] =
          std::minmax_element(row + first, row + std::min<Index>(first + group, 200));
      const float down = std::min(*low, 0.0f), up = std::max(*high, 0.0f);
      const int bits = matrix.spec.bits;
      const float plain = matrix.spec.symmetric
                              ? std::max(-down, up) / static_cast<float>((1 << (bits - 1)) - 1)
                              : (up - down) / static_cast<float>((1 << bits) - 1);
      ASSERT_NEAR(scale, plain, 1.1e-3f * plain) << spec;  // an f16 scale is rounded up
      const float bound = matrix.spec.symmetric ? scale * 0.5001f : scale * 1.0001f;
      ASSERT_LE(std::abs(values[static_cast<std::size_t>(i)] - out[static_cast<std::size_t>(i)]),
                bound)
          << spec << " element " << i;
    }
  }
}

TEST(RoundClip, clip_search_is_never_worse_than_plain_rounding) {
  const auto values = normals(32 * 256, 7);
  for (const char* spec : {"int8:row", "int4:g32", "int4:g128:sym", "int3:g64", "int2:g16"}) {
    const double plain =
        mean_squared_error(values, decoded(quantize(values, 32, 256, spec, false)));
    const double clipped = mean_squared_error(values, decoded(quantize(values, 32, 256, spec)));
    EXPECT_LE(clipped, plain * (1 + 1e-6)) << spec;
  }
}

TEST(RoundClip, uniform_noise_has_variance_of_a_twelfth) {
  PhiloxStream random(11);
  std::vector<float> values(1 << 20);
  for (float& value : values) value = 2 * random.uniform() - 1;
  const QuantMatrix matrix = quantize(values, 1, 1 << 20, "int6:row:sym", false);
  const double step = matrix.scales.as<float>()[0];
  EXPECT_NEAR(mean_squared_error(values, decoded(matrix)) / (step * step / 12), 1, 0.01);
}

TEST(RoundClip, constant_zero_and_extreme_groups_decode_sensibly) {
  for (const char* spec : {"int4:g32:asym", "int4:g32:sym", "int8:row"}) {
    for (const float constant : {0.0f, 0.5f, -0.5f, 3e-7f, -3e-7f, 60000.0f, 1e30f}) {
      const std::vector<float> values(64, constant);
      const auto out = decoded(quantize(values, 2, 32, spec));
      for (const float value : out) EXPECT_NEAR(value, constant, std::abs(constant) * 1e-3) << spec;
    }
  }
}

TEST(RoundClip, tiny_scales_make_the_matrix_store_float_scales) {
  std::vector<float> values(64, 1e-5f);
  EXPECT_EQ(quantize(values, 2, 32, "int4:g32").spec.scale_dtype, Dtype::Float32);
  values.assign(64, 0.3f);
  EXPECT_EQ(quantize(values, 2, 32, "int4:g32").spec.scale_dtype, Dtype::Float16);
}

TEST(RoundClip, a_value_that_is_not_finite_is_named) {
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

TEST(RoundClip, bytes_and_bits_do_not_depend_on_threads) {
  const auto values = normals(53 * 100, 13);
  const QuantMatrix one = quantize(values, 53, 100, "int4:g32");
  for (const int threads : {2, 7}) {
    ThreadPool pool(threads);
    const QuantMatrix many = quantize(values, 53, 100, "int4:g32", true, pool);
    ASSERT_EQ(one.codes.bytes(), many.codes.bytes());
    EXPECT_EQ(std::memcmp(one.codes.data(), many.codes.data(), one.codes.span().size()), 0);
    EXPECT_EQ(std::memcmp(one.scales.data(), many.scales.data(), one.scales.span().size()), 0);
    EXPECT_EQ(std::memcmp(one.zeros.data(), many.zeros.data(), one.zeros.span().size()), 0);
  }
  EXPECT_EQ(one.bytes(),
            static_cast<Index>(one.spec.bits_per_weight(53, 100) * 53 * 100 / 8 + 0.5));
}

TEST(SignalToNoise, is_six_decibels_a_bit_plus_the_formula) {
  const auto values = normals(1 << 20, 17);
  const double eight = signal_to_noise_db(values, quantize(values, 1, 1 << 20, "int8:row").view());
  EXPECT_NEAR(eight, -10 * std::log10(8.83e-5), 0.1);  // 2 % of the derived error
  const std::vector<float> zeros(32, 0.0f);
  EXPECT_TRUE(std::isinf(signal_to_noise_db(zeros, quantize(zeros, 1, 32, "int8:row").view())));
}

}  // namespace
}  // namespace hone::compress
