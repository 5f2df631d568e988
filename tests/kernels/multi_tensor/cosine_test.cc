// SPDX-License-Identifier: Apache-2.0
// The cosine alone, against its formula in double.
#include "hone/kernels/multi_tensor/rule/cosine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::error_of;
using test::random_values;
using testing::ElementsAre;
using testing::HasSubstr;

double formula(std::span<const float> m, std::span<const float> g, CosineGuard guard) {
  double mg = 0, mm = 0, gg = 0;
  for (std::size_t i = 0; i < m.size(); ++i) {
    mg += double{m[i]} * g[i];
    mm += double{m[i]} * m[i];
    gg += double{g[i]} * g[i];
  }
  if (mm == 0 || gg == 0) return 0;
  const double a = std::sqrt(mm), b = std::sqrt(gg);
  if (guard == CosineGuard::Additive) return mg / ((a + 1e-10) * (b + 1e-10));
  return mg / (std::max(a, 1e-8) * std::max(b, 1e-8));
}

TensorView view(std::vector<float>& values, const Shape& shape) {
  return {values.data(), Dtype::Float32, shape};
}

class CosineShapes : public testing::TestWithParam<Shape> {};

TEST_P(CosineShapes, whole_and_by_rows_equal_the_formula) {
  const Shape shape = GetParam();
  const Index n = shape.elements();
  std::vector<float> m = random_values(n, 1), g = random_values(n, 2);
  const TensorView mv = view(m, shape), gv = view(g, shape);
  for (const CosineGuard guard : {CosineGuard::Additive, CosineGuard::Clamp}) {
    EXPECT_NEAR(cosine(mv, gv, guard, serial_executor()), formula(m, g, guard), 1e-13);
  }
  const Index length = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  std::vector<double> rows(static_cast<std::size_t>(length == 0 ? 0 : n / length), 7.0);
  cosine_rows(mv, gv, serial_executor(), rows);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto at = r * static_cast<std::size_t>(length), count = static_cast<std::size_t>(length);
    const auto row = [&](std::vector<float>& from) { return std::span(from).subspan(at, count); };
    ASSERT_NEAR(rows[r], formula(row(m), row(g), CosineGuard::Clamp), 1e-13) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(ScalarToFourDimensionsAndBorders, CosineShapes,
                         testing::Values(Shape{}, Shape{1}, Shape{7}, Shape{17}, Shape{9, 1},
                                         Shape{1, 9}, Shape{64, 64}, Shape{2, 3, 5},
                                         Shape{2, 3, 4, 31}, Shape{0}, Shape{3, 0, 2}, Shape{0, 5},
                                         Shape{5, 0}, Shape{16'383}, Shape{16'384}, Shape{16'385},
                                         Shape{49'153}, Shape{129, 257}, Shape{2, 40'001}));

TEST(Cosine, of_triangles_known_by_heart) {
  std::vector<float> m{3, 4, 5, 12, 1, 0}, g{4, 3, -5, -12, 0, 1};
  std::vector<double> rows(3);
  cosine_rows(view(m, {3, 2}), view(g, {3, 2}), serial_executor(), rows);
  EXPECT_THAT(rows, ElementsAre(24.0 / 25, -1.0, 0.0));
  EXPECT_EQ(cosine(view(m, {6}), view(g, {6}), CosineGuard::Clamp, serial_executor()),
            (24.0 - 169) / (std::sqrt(195) * std::sqrt(195)));
}

TEST(Cosine, is_the_same_for_any_number_of_threads) {
  std::vector<float> m = random_values(999 * 77, 3), g = random_values(999 * 77, 4);
  const TensorView mv = view(m, {999, 77}), gv = view(g, {999, 77});
  std::vector<double> one(999), many(999);
  cosine_rows(mv, gv, serial_executor(), one);
  const double whole = cosine(mv, gv, CosineGuard::Additive, serial_executor());
  for (const int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    cosine_rows(mv, gv, pool, many);
    EXPECT_EQ(many, one) << threads;
    EXPECT_EQ(cosine(mv, gv, CosineGuard::Additive, pool), whole) << threads;
  }
}

// Multiples of one vector: rounding must not carry the cosine outside of [-1, 1].
TEST(Cosine, of_parallel_vectors_is_one_and_never_more) {
  for (const Index n : {1, 2, 3, 15, 16, 17, 1000, 20'000}) {
    std::vector<float> m = random_values(n, 5);
    for (const float factor : {4.0f, -0.5f, 1e15f, -1e-3f}) {
      std::vector<float> g(m);
      for (float& value : g) value *= factor;
      const double got = cosine(view(m, {n}), view(g, {n}), CosineGuard::Clamp, serial_executor());
      EXPECT_LE(std::abs(got), 1) << n;
      EXPECT_NEAR(got, factor > 0 ? 1 : -1, 2e-7) << n << " by " << factor;
    }
  }
}

TEST(Cosine, of_extreme_sizes_neither_overflows_nor_underflows) {
  for (const int exponent : {-140, -100, 0, 100, 124}) {
    std::vector<float> m = random_values(5000, 6), g = random_values(5000, 7);
    const double plain =
        cosine(view(m, {5000}), view(g, {5000}), CosineGuard::Clamp, serial_executor());
    for (float& value : g) value = std::ldexp(value, exponent > 0 ? exponent : 0);
    EXPECT_EQ(cosine(view(m, {5000}), view(g, {5000}), CosineGuard::Clamp, serial_executor()),
              plain);
    for (float& value : m) value = std::ldexp(value, exponent < 0 ? exponent : 0);
    const double want = formula(m, g, CosineGuard::Clamp);
    EXPECT_NEAR(cosine(view(m, {5000}), view(g, {5000}), CosineGuard::Clamp, serial_executor()),
                want, std::abs(want) * 1e-9);
  }
}

TEST(Cosine, a_bad_row_does_not_touch_its_neighbors) {
  const Index length = 37;
  std::vector<float> m = random_values(5 * length, 8), g = random_values(5 * length, 9);
  std::vector<double> clean(5), hurt(5);
  cosine_rows(view(m, {5, length}), view(g, {5, length}), serial_executor(), clean);
  for (const Index at : {2 * length, 3 * length - 1}) {
    std::vector<float> bad(g);
    bad[static_cast<std::size_t>(at)] = test::kNan;
    cosine_rows(view(m, {5, length}), view(bad, {5, length}), serial_executor(), hurt);
    EXPECT_TRUE(std::isnan(hurt[2]));
    hurt[2] = clean[2];
    EXPECT_EQ(hurt, clean);
  }
}

TEST(Cosine, reads_up_to_the_page_and_no_further) {
  for (Index n = 1; n <= 70; ++n) {
    const auto m = random_values(n, 10), g = random_values(n, 11);
    const test::GuardedFloats gm(m), gg(g);
    const TensorView mv(gm.data(), Dtype::Float32, Shape{n}),
        gv(gg.data(), Dtype::Float32, Shape{n});
    EXPECT_NEAR(cosine(mv, gv, CosineGuard::Clamp, serial_executor()),
                formula(m, g, CosineGuard::Clamp), 1e-13);
  }
}

TEST(CosineRefuses, other_types_layouts_shapes_and_places) {
  std::vector<float> m(12, 1.0f), g(12, 1.0f);
  const TensorView good = view(m, {3, 4}), other = view(g, {3, 4});
  std::vector<double> rows(3);
  const auto refusal = [&](const TensorView& a, const TensorView& b) {
    const std::string by_row = error_of([&] { cosine_rows(a, b, serial_executor(), rows); });
    const std::string whole =
        error_of([&] { (void)cosine(a, b, CosineGuard::Clamp, serial_executor()); });
    EXPECT_EQ(by_row, whole);
    return whole;
  };
  EXPECT_EQ(refusal(good, other), "no error");
  EXPECT_THAT(refusal(good, view(g, {4, 3})), HasSubstr("a gradient of [3, 4], got [4, 3]"));
  EXPECT_THAT(refusal(good, view(g, {12})), HasSubstr("a gradient of [3, 4], got [12]"));
  const TensorView turned(g.data(), Dtype::Float32, Shape{3, 4}, Shape{1, 3});
  EXPECT_THAT(refusal(good, turned), HasSubstr("contiguous f32, got f32 with strides [1, 3]"));
  EXPECT_THAT(refusal(turned, good), HasSubstr("contiguous f32"));
  for (const Dtype dtype : {Dtype::BFloat16, Dtype::Float16, Dtype::Float64, Dtype::Int8}) {
    const TensorView typed(g.data(), dtype, Shape{3, 4});
    EXPECT_THAT(refusal(good, typed), HasSubstr(std::string(name_of(dtype))));
    EXPECT_THAT(refusal(typed, good), HasSubstr("contiguous f32"));
  }
  for (const std::size_t places : {0u, 2u, 4u}) {
    std::vector<double> out(places);
    EXPECT_THAT(error_of([&] { cosine_rows(good, other, serial_executor(), out); }),
                HasSubstr("[cosine] expected 3 places for rows"));
  }
}

}  // namespace
}  // namespace hone::kernels
