// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Which two elements of a head are rotated together (Su et al., arXiv 2104.09864): (i, i + dims/2)
// as in Hugging Face files, or (2i, 2i + 1) as in GGUF and llama2.c.
enum class RopePairs { HalfSplit, Adjacent };

// Rotates the first `dims` elements of every head of x [rows, heads, head_dim] into y:
//   (a, b) -> (a cos - b sin, b cos + a sin).
// Row r and pair i use element [(r mod positions) * dims/2 + i] of the tables. Elements from `dims`
// on are copied. An element's bits do not depend on the number of rows or workers.
struct RopeArgs {
  const float* x = nullptr;
  Index x_stride = 0;  // elements between rows; heads are head_dim apart
  float* y = nullptr;  // may be x
  Index y_stride = 0;
  Index rows = 0, heads = 0, head_dim = 0;
  Index dims = 0;  // even, <= head_dim
  RopePairs pairs = RopePairs::HalfSplit;
  Index positions = 0;            // rows of the tables, > 0
  const float* cosine = nullptr;  // [positions, dims/2]
  const float* sine = nullptr;    // [positions, dims/2]
  bool inverse = false;           // rotates by the negative angle, for the gradient
};

// Throws Error{InvalidArgument} for odd or too many dims, positions that are not positive, or a
// stride below heads * head_dim.
void apply_rope(const RopeArgs& args, Executor& executor = serial_executor());

// Reference: plain loops in double.
void apply_rope_ref(const RopeArgs& args);

// Fills the two tables for positions first_position…: angle = position * inverse[i]. Computes in
// double, multiplies by `factor` (Yarn's attention factor) and rounds to f32 once. cosine.size() ==
// sine.size() == rows * inverse.size().
void fill_rope_tables(std::span<const double> inverse, double factor, Index first_position,
                      std::span<float> cosine, std::span<float> sine);

}  // namespace hone::kernels
