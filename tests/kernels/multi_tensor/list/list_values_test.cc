// SPDX-License-Identifier: Apache-2.0
// Element-wise functions over lists against fp64, at every tail, on memory that ends with its page.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/multi_tensor/list/multi_tensor_list.h"
#include "tests/kernels/multi_tensor/list/float_list.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using hone::test::same_bits;
using test::FloatList;
using test::kEpsilon;
using test::kInfinity;
using test::kNan;
using test::tail_sizes;

Executor& serial() { return serial_executor(); }

// a x + b y within the roundings of b y, of a x and of their sum.
void expect_axpby(double a, const std::vector<float>& x, double b, const std::vector<float>& y,
                  const std::vector<float>& got) {
  ASSERT_EQ(got.size(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double room = kEpsilon * (std::abs(a * x[i]) + std::abs(b * y[i]));
    ASSERT_NEAR(got[i], a * x[i] + b * y[i], room) << i << " of " << x.size();
  }
}

TEST(ListAdd, is_within_its_roundings_of_fp64_at_every_length) {
  const FloatList x(tail_sizes(), 1, 10);
  for (const float alpha : {1.0f, -0.3f, 1e-3f, 0.0f, 1e20f}) {
    const FloatList old(tail_sizes(), 100), y(tail_sizes(), 100);
    list_add(y.views, alpha, x.views, serial());
    for (std::size_t i = 0; i < x.views.size(); ++i) {
      expect_axpby(alpha, x.values(i), 1, old.values(i), y.values(i));
    }
  }
}

TEST(ListAxpby, writes_z_or_y_and_nothing_else) {
  const FloatList x(tail_sizes(), 1), y(tail_sizes(), 100), z(tail_sizes(), 200);
  const auto old_x = x.values(), old_y = y.values();
  list_axpby({.a = 0.75, .x = x.views, .b = -1.5, .y = y.views, .z = z.views}, serial());
  EXPECT_TRUE(same_bits(x.values(), old_x));
  EXPECT_TRUE(same_bits(y.values(), old_y));
  for (std::size_t i = 0; i < x.views.size(); ++i) {
    expect_axpby(0.75, old_x[i], -1.5, old_y[i], z.values(i));
  }
  list_axpby({.a = 0.75, .x = x.views, .b = -1.5, .y = y.views}, serial());
  EXPECT_TRUE(same_bits(x.values(), old_x));
  EXPECT_TRUE(same_bits(y.values(), z.values()));
}

// Whole numbers are exact: a (x1 + x2) = a x1 + a x2, and what was added can be taken away.
TEST(ListAxpby, is_linear_on_whole_numbers) {
  std::vector<std::vector<float>> first, second;
  for (const Index n : tail_sizes()) {
    first.push_back(test::random_integers(n, 1, 1000));
    second.push_back(test::random_integers(n, 2, 1000));
  }
  const FloatList x1(first), x2(second), sum(first), parts(second), back(first);
  list_add(sum.views, 1, x2.views, serial());
  list_mul(sum.views, 7, serial());
  list_axpby({.a = 7, .x = x1.views, .b = 7, .y = parts.views}, serial());
  EXPECT_TRUE(same_bits(sum.values(), parts.values()));
  list_add(back.views, 3, x2.views, serial());
  list_add(back.views, -3, x2.views, serial());
  EXPECT_TRUE(same_bits(back.values(), first));
}

TEST(ListAxpby, every_operand_may_be_what_is_written) {
  const FloatList x({5, 20'000, 33}, 1), y({5, 20'000, 33}, 2);
  FloatList twice(x.values()), over_x(x.values()), over_y(y.values()), apart(x.values());
  list_axpby({.a = 2, .x = x.views, .b = 3, .y = y.views, .z = apart.views}, serial());
  list_axpby({.a = 2, .x = over_x.views, .b = 3, .y = y.views, .z = over_x.views}, serial());
  list_axpby({.a = 2, .x = x.views, .b = 3, .y = over_y.views, .z = over_y.views}, serial());
  EXPECT_TRUE(same_bits(over_x.values(), apart.values()));
  EXPECT_TRUE(same_bits(over_y.values(), apart.values()));
  list_add(twice.views, 1, twice.views, serial());
  FloatList doubled(x.values());
  list_mul(doubled.views, 2, serial());
  EXPECT_TRUE(same_bits(twice.values(), doubled.values()));
}

TEST(ListFactors, may_be_one_per_tensor) {
  const std::vector<Index> sizes{3, 0, 40'000, 70, 1};
  const std::vector<double> a{0.5, 9, -2, 3, 0.1}, b{1, 9, 0.25, -1, 7};
  const FloatList x(sizes, 1), y(sizes, 20), added(y.values()), both(y.values()),
      scaled(y.values());
  list_add(added.views, a, x.views, serial());
  list_axpby({.a = a, .x = x.views, .b = b, .y = both.views}, serial());
  list_mul(scaled.views, b, serial());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double near_a = static_cast<float>(a[i]), near_b = static_cast<float>(b[i]);
    expect_axpby(near_a, x.values(i), 1, y.values(i), added.values(i));
    expect_axpby(near_a, x.values(i), near_b, y.values(i), both.values(i));
    expect_axpby(0, x.values(i), near_b, y.values(i), scaled.values(i));
  }
}

TEST(ListMul, is_one_rounded_product_per_element) {
  const FloatList x(tail_sizes(), 1, 1e3f), old(tail_sizes(), 100), y(old.values()),
      scaled(old.values()), squares(old.values());
  list_mul(y.views, x.views, serial());
  list_mul(scaled.views, -0.3, serial());
  list_mul(squares.views, squares.views, serial());
  for (std::size_t i = 0; i < x.views.size(); ++i) {
    const auto left = x.values(i), right = old.values(i);
    for (std::size_t j = 0; j < left.size(); ++j) {
      ASSERT_EQ(y.values(i)[j], static_cast<float>(double{left[j]} * right[j]));
      ASSERT_EQ(scaled.values(i)[j], static_cast<float>(double{-0.3f} * right[j]));
      ASSERT_EQ(squares.values(i)[j], static_cast<float>(double{right[j]} * right[j]));
      if (j > 70) j += 97;
    }
  }
}

TEST(ListClamp, leaves_nan_and_what_lies_between) {
  for (Index at = 0; at < 37; ++at) {
    std::vector<float> values = test::random_values(37, 5, 4);
    values[static_cast<std::size_t>(at)] = kNan;
    values[static_cast<std::size_t>((at + 1) % 37)] = kInfinity;
    values[static_cast<std::size_t>((at + 2) % 37)] = -kInfinity;
    const FloatList y({values}), low({values}), none({values});
    list_clamp(y.views, -1, 2, serial());
    list_clamp(low.views, 0.5, kInfinity, serial());
    list_clamp(none.views, -kInfinity, kInfinity, serial());
    EXPECT_TRUE(same_bits(none.values(), {values}));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(y.values(0)[i]) && std::isnan(low.values(0)[i]));
      } else {
        ASSERT_EQ(y.values(0)[i], std::min(std::max(values[i], -1.0f), 2.0f)) << i;
        ASSERT_EQ(low.values(0)[i], std::max(values[i], 0.5f)) << i;
      }
    }
  }
}

TEST(ListZero, also_clears_nan) {
  FloatList y(tail_sizes(), 1);
  for (const TensorView& view : y.views) {
    for (Index i = 0; i < view.elements(); i += 3) view.as<float>()[i] = i % 2 ? kNan : kInfinity;
  }
  list_zero(y.views, serial());
  for (const float value : y.joined()) ASSERT_TRUE(value == 0 && !std::signbit(value));
}

// As in PyTorch: 0 inf is NaN, and a bad element spoils no other.
TEST(Lists, nan_and_inf_stay_where_they_are) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (Index at = 0; at < 37; ++at) {
      const auto hit = static_cast<std::size_t>(at);
      std::vector<float> values = test::random_values(37, 5);
      values[hit] = bad;
      const FloatList x({values}), sum({37}, 6), hidden({37}, 7), product({37}, 8);
      list_add(sum.views, 1, x.views, serial());
      list_add(hidden.views, 0, x.views, serial());
      list_mul(product.views, x.views, serial());
      for (std::size_t i = 0; i < 37; ++i) {
        ASSERT_EQ(std::isfinite(sum.values(0)[i]), i != hit);
        ASSERT_EQ(std::isfinite(product.values(0)[i]), i != hit);
        ASSERT_EQ(std::isnan(hidden.values(0)[i]), i == hit);
      }
      ASSERT_TRUE(std::isnan(bad) ? std::isnan(sum.values(0)[hit]) : sum.values(0)[hit] == bad);
    }
  }
}

// Two matrices stored by columns, and a matrix with its transpose's order in a larger list.
TEST(Lists, transposed_tensors_are_worked_on_in_memory_order) {
  constexpr Index kRows = 130, kColumns = 257;
  FloatList x({kRows * kColumns, 12}, 1), y({kRows * kColumns, 12}, 2);
  const auto old = y.values();
  for (FloatList* list : {&x, &y}) {
    list->views[0] =
        TensorView(list->views[0].data, Dtype::Float32, Shape{kRows, kColumns}, Shape{1, kRows});
    // A dimension of size one may have any stride; those of three are permuted.
    list->views[1] = TensorView(list->views[1].data, Dtype::Float32, Shape{2, 1, 3, 2},
                                Shape{1, list == &x ? 77 : 5, 4, 2});
  }
  list_add(y.views, 2, x.views, serial());
  for (std::size_t i = 0; i < 2; ++i) {
    const auto* from = x.views[i].as<float>();
    const auto count = static_cast<std::size_t>(x.views[i].elements());
    const std::vector<float> x_values(from, from + count);
    const auto* to = y.views[i].as<float>();
    expect_axpby(2, x_values, 1, old[i], std::vector<float>(to, to + count));
  }
}

TEST(Lists, may_be_empty_or_hold_empty_tensors) {
  list_add({}, 1, {}, serial());
  list_axpby({}, serial());
  list_mul({}, 2, serial());
  list_mul({}, std::vector<double>{}, serial());
  list_zero({}, serial());
  const std::vector<TensorView> nothing(3, TensorView(nullptr, Dtype::Float32, Shape{0, 4}));
  list_add(nothing, 1, nothing, serial());
  list_clamp(nothing, -1, 1, serial());
  list_zero(nothing, serial());
  EXPECT_EQ(list_norm(nothing, serial()), 0);
}

std::vector<Index> mixed_sizes(Index count) {
  PhiloxStream random(11);
  std::vector<Index> sizes;
  for (Index i = 0; i < count; ++i) {
    sizes.push_back(random.below(100) == 0 ? 20'000 + random.below(50'000) : random.below(900));
  }
  return sizes;
}

using Work = std::function<void(const FloatList& y, const FloatList& x, Executor&)>;

std::vector<Work> every_work() {
  return {
      [](const auto& y, const auto& x, Executor& e) { list_add(y.views, 0.3, x.views, e); },
      [](const auto& y, const auto& x, Executor& e) {
        list_axpby({.a = 0.3, .x = x.views, .b = -1.7, .y = y.views}, e);
      },
      [](const auto& y, const auto&, Executor& e) { list_mul(y.views, 0.3, e); },
      [](const auto& y, const auto& x, Executor& e) { list_mul(y.views, x.views, e); },
      [](const auto& y, const auto&, Executor& e) { list_clamp(y.views, -0.5, 0.25, e); },
      [](const auto& y, const auto&, Executor& e) { list_clip_norm(y.views, 0.5, e); },
      [](const auto& y, const auto&, Executor& e) { list_zero(y.views, e); },
  };
}

TEST(Lists, of_3000_mixed_tensors_have_the_same_bits_on_1_2_and_5_workers) {
  const std::vector<Index> sizes = mixed_sizes(3000);
  const FloatList x(sizes, 1), old(sizes, 5000);
  ThreadPool two(2), five(5);
  const auto works = every_work();
  for (std::size_t w = 0; w < works.size(); ++w) {
    const FloatList expected(old.values());
    works[w](expected, x, serial());
    EXPECT_FALSE(same_bits(expected.values(), old.values())) << w;
    for (ThreadPool* pool : {&two, &five}) {
      const FloatList y(old.values());
      works[w](y, x, *pool);
      EXPECT_TRUE(same_bits(y.values(), expected.values())) << w << " on " << pool->workers();
    }
  }
}

// An element's result depends neither on its place nor on the rest of the list.
TEST(Lists, of_one_tensor_each_give_the_same_bits) {
  const std::vector<Index> sizes = tail_sizes();
  const FloatList x(sizes, 1), old(sizes, 100);
  const auto works = every_work();
  for (const std::size_t w : {0, 1, 2, 3, 4}) {
    const FloatList together(old.values());
    works[w](together, x, serial());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const FloatList one_x({x.values(i)}), one({old.values(i)});
      works[w](one, one_x, serial());
      ASSERT_TRUE(same_bits(one.values(), {together.values(i)})) << w << " tensor " << i;
    }
  }
}

TEST(Lists, plain_loops_say_the_same) {
  const std::vector<Index> sizes = tail_sizes();
  const FloatList x(sizes, 1), old(sizes, 100);
  for (const Work& work : every_work()) {
    const FloatList fast(old.values()), plain(old.values());
    work(fast, x, serial());
    ::setenv("HONE_FORCE_KERNEL", "multi_tensor:ref", 1);
    work(plain, x, serial());
    ::unsetenv("HONE_FORCE_KERNEL");
    test::expect_close(fast.joined(), plain.joined(), 2 * kEpsilon, "plain loops");
  }
}

}  // namespace
}  // namespace hone::kernels
