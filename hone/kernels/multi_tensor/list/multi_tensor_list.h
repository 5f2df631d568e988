// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <span>

#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Element-wise work and norms over lists of tensors, one parallel sweep per call: small tensors
// share a worker's unit of about kChunkElements, large ones are cut.
//
// Tensors are f32 and dense, in any order of dimensions; tensor i has one shape and one order in
// all lists of a call. A tensor that is written shares memory with no other tensor of the call, but
// where it is written in place: then it is exactly the tensor i that is read. Lists and tensors may
// be empty. Results do not depend on the number of workers. A call allocates up to 64 bytes per
// tensor; norms also 8 per chunk, of which a tensor has at most 1024 (ListCut).
//
// Error{InvalidArgument} naming list and tensor, before anything is written: lengths, shapes or
// layouts that differ, holes, missing memory, memory that is shared, factors beyond f32.
// Error{Unsupported}: another type.
using TensorList = std::span<const TensorView>;

// One factor for all tensors, or one for each (the numbers stay the caller's). Rounded to f32. NaN
// and inf are allowed, and 0 does not hide those of a tensor.
class ListFactor {
 public:
  ListFactor(double all) : all_(all) {}
  template <class Numbers>
  requires std::convertible_to<const Numbers&, std::span<const double>> ListFactor(
      const Numbers& of_tensors)
      : of_tensors_(of_tensors), is_one_(false) {}

  bool is_one() const { return is_one_; }
  std::span<const double> of_tensors() const { return of_tensors_; }
  double at(Index tensor) const {
    return is_one_ ? all_ : of_tensors_[static_cast<std::size_t>(tensor)];
  }

 private:
  double all_ = 1;
  std::span<const double> of_tensors_;
  bool is_one_ = true;
};

// y <- y + alpha x. 12 bytes per element.
void list_add(TensorList y, const ListFactor& alpha, TensorList x, Executor& executor);

// z <- a x + b y; without z, y is written. 12 bytes per element. b y is rounded, then the sum;
// where the processor fuses multiplication and addition, a x is not rounded by itself.
struct ListAxpby {
  ListFactor a = 1;
  TensorList x;
  ListFactor b = 1;
  TensorList y;
  TensorList z = {};
};
void list_axpby(const ListAxpby& args, Executor& executor);

// y <- factor y. 8 bytes per element.
void list_mul(TensorList y, const ListFactor& factor, Executor& executor);
// y <- x y, element by element. 12 bytes per element.
void list_mul(TensorList y, TensorList x, Executor& executor);

// y <- min(max(y, lowest), highest), as for PyTorch's clip_grad_value_ with -v and v; NaN stays. 8
// bytes per element. Infinite limits are none. Error{InvalidArgument} also for limits that are NaN
// or in the wrong order.
void list_clamp(TensorList y, double lowest, double highest, Executor& executor);

// y <- 0. 4 bytes per element.
void list_zero(TensorList y, Executor& executor);

enum class NormKind {
  L1,   // sum |x|
  L2,   // sqrt(sum x^2)
  Max,  // max |x|; 0 of nothing
};

// The norm of all elements of all tensors and, where `of_tensors` is not empty, that of each
// tensor. Sums are taken in double, in an order that depends on the sizes alone; they cannot
// overflow. NaN where an element is NaN, else inf where one is. Here tensors may share memory. 4
// bytes per element.
double list_norm(TensorList x, Executor& executor, NormKind kind = NormKind::L2,
                 std::span<double> of_tensors = {});

// y <- min(1, max_norm / (norm + 1e-6)) y, as PyTorch's clip_grad_norm_, and returns the norm
// before. A NaN norm makes all NaN; an infinite one makes infinities NaN and the rest 0. 4 bytes
// per element, and 8 more where it clips. An infinite max_norm only measures;
// Error{InvalidArgument} also for one below 0 or NaN.
double list_clip_norm(TensorList y, double max_norm, Executor& executor,
                      NormKind kind = NormKind::L2);

}  // namespace hone::kernels
