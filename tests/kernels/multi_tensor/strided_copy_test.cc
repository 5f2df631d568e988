// SPDX-License-Identifier: Apache-2.0
// Any window of any view, against a walk over multi-indices.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "hone/core/philox.h"
#include "hone/kernels/multi_tensor/codec/strided_copy.h"

namespace hone::kernels {
namespace {

// Address of each element of the view in row-major order, relative to its data.
std::vector<Index> addresses(const TensorView& view) {
  std::vector<Index> all;
  for (Index e = 0; e < view.elements(); ++e) {
    Index rest = e, at = 0;
    for (int axis = view.shape.rank() - 1; axis >= 0; --axis) {
      at += rest % view.shape[axis] * view.strides[axis];
      rest /= view.shape[axis];
    }
    all.push_back(at);
  }
  return all;
}

// A random view of up to four dimensions whose elements lie apart, in some order of dimensions,
// with holes.
TensorView random_view(PhiloxStream& random, std::vector<float>& memory) {
  Index dims[4] = {1, 1, 1, 1}, strides[4] = {};
  const int rank = static_cast<int>(random.below(5));
  std::vector<int> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
  Index reach = 1;
  for (const int axis : order) {
    dims[axis] = 1 + random.below(6);
    strides[axis] = reach * (1 + random.below(2));
    reach = strides[axis] * dims[axis];
  }
  memory.assign(static_cast<std::size_t>(reach), -1.0f);
  std::iota(memory.begin(), memory.end(), 0.0f);
  const auto count = static_cast<std::size_t>(rank);
  return {memory.data(), Dtype::Float32, Shape(std::span<const Index>(dims, count)),
          Shape(std::span<const Index>(strides, count))};
}

TEST(StridedCopy, every_window_holds_the_elements_in_row_major_order) {
  PhiloxStream random(1);
  std::vector<float> memory;
  for (int trial = 0; trial < 300; ++trial) {
    const TensorView view = random_view(random, memory);
    const std::vector<Index> where = addresses(view);
    const auto count = static_cast<Index>(where.size());
    const Index offset = random.below(static_cast<std::uint32_t>(count + 1));
    const Index length = random.below(static_cast<std::uint32_t>(count - offset + 1));
    std::vector<float> got(static_cast<std::size_t>(length) + 1, -5.0f);
    copy_from_strided(view, offset, length, got.data());
    for (Index i = 0; i < length; ++i)
      ASSERT_EQ(got[i], memory[where[offset + i]]) << to_text(view.shape) << " " << offset;
    ASSERT_EQ(got.back(), -5.0f) << "one element too many";
  }
}

TEST(StridedCopy, writing_a_window_touches_its_elements_and_no_other) {
  PhiloxStream random(2);
  std::vector<float> memory;
  for (int trial = 0; trial < 300; ++trial) {
    const TensorView view = random_view(random, memory);
    const std::vector<Index> where = addresses(view);
    const auto count = static_cast<Index>(where.size());
    const Index offset = random.below(static_cast<std::uint32_t>(count + 1));
    const Index length = random.below(static_cast<std::uint32_t>(count - offset + 1));
    std::vector<float> fresh(static_cast<std::size_t>(length));
    std::iota(fresh.begin(), fresh.end(), 1e6f);
    std::vector<float> expected = memory;
    for (Index i = 0; i < length; ++i) expected[where[offset + i]] = fresh[i];
    copy_to_strided(fresh.data(), view, offset, length);
    ASSERT_EQ(memory, expected) << to_text(view.shape) << " " << to_text(view.strides);
  }
}

TEST(StridedCopy, windows_one_after_the_other_are_the_whole) {
  PhiloxStream random(3);
  std::vector<float> memory;
  for (int trial = 0; trial < 100; ++trial) {
    const TensorView view = random_view(random, memory);
    const Index count = view.elements();
    std::vector<float> whole(static_cast<std::size_t>(count)), parts(whole.size());
    copy_from_strided(view, 0, count, whole.data());
    for (Index offset = 0; offset < count;) {
      const Index length = std::min<Index>(count - offset, 1 + random.below(7));
      copy_from_strided(view, offset, length, parts.data() + offset);
      offset += length;
    }
    ASSERT_EQ(parts, whole);
  }
}

TEST(StridedCopy, expanded_views_repeat_what_they_show) {
  std::vector<float> memory{3, 4, 5};
  const TensorView rows(memory.data(), Dtype::Float32, Shape{2, 3}, Shape{0, 1});
  std::vector<float> got(6);
  copy_from_strided(rows, 0, 6, got.data());
  EXPECT_EQ(got, (std::vector<float>{3, 4, 5, 3, 4, 5}));
}

TEST(StridedCopy, a_scalar_is_one_element) {
  float value = 3, got = 0;
  const TensorView scalar(&value, Dtype::Float32, Shape{});
  copy_from_strided(scalar, 0, 1, &got);
  EXPECT_EQ(got, 3);
  got = 8;
  copy_to_strided(&got, scalar, 0, 1);
  EXPECT_EQ(value, 8);
}

}  // namespace
}  // namespace hone::kernels
