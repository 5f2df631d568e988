// SPDX-License-Identifier: Apache-2.0
// Norms of lists and clipping by them: closed forms, fp64, properties, NaN and inf as in PyTorch.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>

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

constexpr NormKind kKinds[] = {NormKind::L1, NormKind::L2, NormKind::Max};

Executor& serial() { return serial_executor(); }

double norm_of(const std::vector<float>& values, NormKind kind) {
  long double sum = 0, squares = 0;
  double largest = 0;
  for (const float value : values) {
    sum += std::abs(value);
    squares += static_cast<long double>(value) * value;
    largest = std::max(largest, std::abs(double{value}));
  }
  return kind == NormKind::Max  ? largest
         : kind == NormKind::L1 ? static_cast<double>(sum)
                                : static_cast<double>(std::sqrt(squares));
}

// Roundings of a sum of n doubles: relative error below n 2^-53.
constexpr double kRoom = 1e-11;

TEST(ListNorm, of_all_and_of_each_is_that_of_fp64) {
  const FloatList x(tail_sizes(), 1, 1e10f);
  for (const NormKind kind : kKinds) {
    std::vector<double> of_tensors(x.views.size(), -1);
    const double got = list_norm(x.views, serial(), kind, of_tensors);
    const double want = norm_of(x.joined(), kind);
    EXPECT_NEAR(got, want, kRoom * want);
    EXPECT_EQ(list_norm(x.views, serial(), kind), got);
    for (std::size_t i = 0; i < x.views.size(); ++i) {
      const double own = norm_of(x.values(i), kind);
      EXPECT_NEAR(of_tensors[i], own, kRoom * own) << i;
    }
  }
}

TEST(ListNorm, takes_known_values) {
  const FloatList x({{3, 0, 0}, {}, {-4}, {12, 84}});
  EXPECT_EQ(list_norm(x.views, serial(), NormKind::L1), 103);
  EXPECT_EQ(list_norm(x.views, serial()), 85);
  EXPECT_EQ(list_norm(x.views, serial(), NormKind::Max), 84);
}

TEST(ListNorm, of_a_concatenation_is_that_of_the_norms_of_its_parts) {
  const FloatList parts({7, 16'384, 50'001, 3}, 1), whole({parts.joined()});
  for (const NormKind kind : kKinds) {
    std::vector<double> of_parts(4);
    const double all = list_norm(parts.views, serial(), kind, of_parts);
    const double joined = list_norm(whole.views, serial(), kind);
    EXPECT_NEAR(all, joined, kRoom * joined);
    const double combined =
        kind == NormKind::L1 ? of_parts[0] + of_parts[1] + of_parts[2] + of_parts[3]
        : kind == NormKind::L2
            ? std::hypot(std::hypot(of_parts[0], of_parts[1]), std::hypot(of_parts[2], of_parts[3]))
            : std::max({of_parts[0], of_parts[1], of_parts[2], of_parts[3]});
    EXPECT_NEAR(combined, all, kRoom * all);
  }
}

TEST(ListNorm, scales_with_its_tensors) {
  const FloatList x({31, 20'000}, 1);
  const FloatList scaled(x.values());
  list_mul(scaled.views, -4, serial());
  for (const NormKind kind : kKinds) {
    EXPECT_EQ(list_norm(scaled.views, serial(), kind), 4 * list_norm(x.views, serial(), kind));
  }
}

// f32 could hold neither these squares nor this sum.
TEST(ListNorm, of_the_largest_and_the_smallest_floats_neither_overflows_nor_vanishes) {
  const float largest = 0x1.fffffep127f, smallest = 0x1p-149f;
  const FloatList large({std::vector<float>(30'000, largest)}),
      small({std::vector<float>(30'000, -smallest)});
  for (const auto& [list, size] : {std::pair(&large, largest), {&small, smallest}}) {
    const double exact = size;
    EXPECT_NEAR(list_norm(list->views, serial(), NormKind::L1) / exact, 30'000, 1e-7);
    EXPECT_NEAR(list_norm(list->views, serial()) / exact, std::sqrt(30'000.0), 1e-9);
    EXPECT_EQ(list_norm(list->views, serial(), NormKind::Max), exact);
  }
}

TEST(ListNorm, of_nothing_is_zero) {
  const std::vector<TensorView> nothing(2, TensorView(nullptr, Dtype::Float32, Shape{0}));
  for (const NormKind kind : kKinds) {
    std::vector<double> of_tensors(2, -1);
    EXPECT_EQ(list_norm({}, serial(), kind), 0);
    EXPECT_EQ(list_norm(nothing, serial(), kind, of_tensors), 0);
    EXPECT_EQ(of_tensors, std::vector<double>(2, 0));
  }
}

TEST(ListNorm, is_inf_or_nan_where_an_element_is_and_nan_wins) {
  for (const NormKind kind : kKinds) {
    for (const Index n : {1, 37, 40'000}) {
      for (Index at = 0; at < n; at += n < 100 ? 1 : 7'919) {
        FloatList x({n, 5, n}, 1);
        std::vector<double> norms(3);
        float& hit = x.views[0].as<float>()[at];
        hit = -kInfinity;
        EXPECT_EQ(list_norm(x.views, serial(), kind, norms), kInfinity);
        EXPECT_EQ(norms[0], kInfinity);
        EXPECT_TRUE(std::isfinite(norms[1]) && std::isfinite(norms[2]));
        for (const float nan : {kNan, -kNan}) {
          x.views[2].as<float>()[n - 1 - at] = nan;
          EXPECT_TRUE(std::isnan(list_norm(x.views, serial(), kind, norms)));
          EXPECT_EQ(norms[0], kInfinity);
          EXPECT_TRUE(std::isnan(norms[2]));
        }
        hit = kNan;  // before the one in the last tensor
        EXPECT_TRUE(std::isnan(list_norm(x.views, serial(), kind, norms)));
        EXPECT_TRUE(std::isnan(norms[0]) && std::isfinite(norms[1]));
      }
    }
  }
}

TEST(ListNorm, has_the_same_bits_on_1_2_and_5_workers) {
  std::vector<Index> sizes(3000, 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = i % 100 == 3 ? 60'000 : static_cast<Index>(i * 7 % 911);
  }
  const FloatList x(sizes, 1);
  ThreadPool two(2), five(5);
  for (const NormKind kind : kKinds) {
    std::vector<double> expected(sizes.size());
    const double all = list_norm(x.views, serial(), kind, expected);
    for (ThreadPool* pool : {&two, &five}) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        std::vector<double> norms(sizes.size());
        EXPECT_EQ(list_norm(x.views, *pool, kind, norms), all);
        EXPECT_EQ(norms, expected);
      }
    }
  }
}

TEST(ListNorm, plain_loops_say_the_same) {
  const FloatList x(tail_sizes(), 1);
  for (const NormKind kind : kKinds) {
    const double fast = list_norm(x.views, serial(), kind);
    ::setenv("HONE_FORCE_KERNEL", "multi_tensor:ref", 1);
    EXPECT_NEAR(list_norm(x.views, serial(), kind), fast, kRoom * fast);
    ::unsetenv("HONE_FORCE_KERNEL");
  }
}

TEST(ListClipNorm, brings_the_norm_down_to_the_limit_and_returns_the_old_one) {
  for (const NormKind kind : kKinds) {
    const FloatList y({5, 40'000, 33, 0, 700}, 1);
    const auto old = y.values();
    const double before = norm_of(y.joined(), kind), limit = before / 3;
    EXPECT_NEAR(list_clip_norm(y.views, limit, serial(), kind), before, kRoom * before);
    // PyTorch's coefficient, rounded to f32 as its factor is.
    const auto factor = static_cast<float>(limit / (before + 1e-6));
    for (std::size_t i = 0; i < old.size(); ++i) {
      for (std::size_t j = 0; j < old[i].size(); ++j) {
        ASSERT_NEAR(y.values(i)[j], double{old[i][j]} * factor, 2 * kEpsilon * std::abs(old[i][j]));
        if (j > 70) j += 997;
      }
    }
    EXPECT_NEAR(norm_of(y.joined(), kind), limit, 1e-5 * limit);
  }
}

TEST(ListClipNorm, changes_nothing_within_the_limit_or_without_one) {
  const FloatList y({5, 20'000}, 1);
  const auto old = y.values();
  const double norm = list_norm(y.views, serial());
  EXPECT_EQ(list_clip_norm(y.views, 2 * norm, serial()), norm);
  EXPECT_EQ(list_clip_norm(y.views, kInfinity, serial()), norm);
  EXPECT_TRUE(same_bits(y.values(), old));
  EXPECT_EQ(list_clip_norm(y.views, 0, serial()), norm);
  EXPECT_EQ(list_norm(y.views, serial()), 0);
}

// torch.nn.utils.clip_grad_norm_ on [inf, 1] leaves [nan, 0], and on [nan, 4] it leaves [nan, nan].
TEST(ListClipNorm, of_inf_and_nan_does_what_pytorch_does) {
  using Values = std::vector<std::vector<float>>;
  const FloatList infinite(Values{{kInfinity, 1}, {-2}}), nan(Values{{kNan, 4}, {-2}}),
      zero(Values(1, {0, 0}));
  EXPECT_EQ(list_clip_norm(infinite.views, 1, serial()), kInfinity);
  EXPECT_TRUE(std::isnan(infinite.values(0)[0]));
  EXPECT_EQ(infinite.values(0)[1], 0);
  EXPECT_EQ(infinite.values(1)[0], 0);
  EXPECT_TRUE(std::isnan(list_clip_norm(nan.views, 1, serial())));
  for (const float value : nan.joined()) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(list_clip_norm(zero.views, 1, serial()), 0);
  EXPECT_EQ(zero.values(0), std::vector<float>(2, 0));
}

}  // namespace
}  // namespace hone::kernels
