// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Replaces each row of x [rows, n] by its Walsh-Hadamard transform y_i = sum_j (-1)^|i & j| x_j,
// where |.| is the number of set bits. n must be a power of two. Two transforms give n times the
// input. x is f32 or f64; columns are adjacent, and rows are at least n apart. The result has the
// bits of the textbook loop, for every instruction set and thread count.
//
// Throws Error{InvalidArgument} for another shape, type or layout.
void fwht_rows(const TensorView& x, Executor& executor = serial_executor());

// Reference: the textbook loop.
void fwht_rows_ref(const TensorView& x);

// Transforms each column of x [length, width] without gaps, on the calling thread. `length` must be
// a power of two. `width` must be 1 or kHadamardWidth<T>, the numbers in a cache line. Checks
// nothing.
template <class T>
inline constexpr Index kHadamardWidth = kCacheLine / Index{sizeof(T)};
void hadamard_panel(float* x, Index length, Index width);
void hadamard_panel(double* x, Index length, Index width);

}  // namespace hone::kernels
