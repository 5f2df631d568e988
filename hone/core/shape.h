// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>

#include "hone/core/index.h"

namespace hone {

// Up to eight dimensions or strides, stored inline. Rank 0 is a scalar.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<Index> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  // Throws Error{InvalidArgument} above kMaxRank dimensions.
  explicit Shape(std::span<const Index> dims);

  int rank() const { return rank_; }
  Index operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  Index& operator[](int axis) { return dims_[static_cast<std::size_t>(axis)]; }
  std::span<const Index> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  // Product of the dimensions; 1 for a scalar.
  Index elements() const;
  // Row-major strides, in elements.
  Shape contiguous_strides() const;

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<Index, kMaxRank> dims_{};
  int rank_ = 0;
};

// "[2, 3]"
std::string to_text(const Shape& shape);

}  // namespace hone
