// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <span>

#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Element-wise work and norms over lists of tensors, with one parallel sweep per call. Small
// tensors share a worker's unit of about kChunkElements; large ones are cut.
//
// Tensors are f32 and dense, in any order of dimensions. Tensor i has the same shape and order in
// all lists of a call. A tensor that is written must not share memory with another tensor of the
// call, except in place: it may be exactly the tensor i that is read. Lists and tensors may be
// empty. Results do not depend on the number of workers. A call allocates up to 64 bytes per
// tensor. Norms also allocate 8 bytes per chunk; a tensor has at most 1024 chunks (ListCut).
//
// Before anything is written, all functions throw Error{InvalidArgument} that names list and tensor
// for different lengths, shapes or layouts, holes, missing or shared memory, and factors beyond
// f32. They throw Error{Unsupported} for another type.
using TensorList = std::span<const TensorView>;

// One factor for all tensors, or one for each; the caller's numbers must outlive it. Factors are
// rounded to f32. NaN and inf are allowed, and a factor of 0 does not hide NaN and inf of a tensor.
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

// z <- a x + b y; without z, y is written. 12 bytes per element. b y is rounded, then the sum. If
// the processor fuses multiplication and addition, a x is not rounded by itself.
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

// y <- min(max(y, lowest), highest), like PyTorch's clip_grad_value_ with -v and v; NaN stays NaN.
// 8 bytes per element. Infinite limits have no effect. Also throws Error{InvalidArgument} for
// limits that are NaN or in the wrong order.
void list_clamp(TensorList y, double lowest, double highest, Executor& executor);

// y <- 0. 4 bytes per element.
void list_zero(TensorList y, Executor& executor);

enum class NormKind {
  L1,   // sum |x|
  L2,   // sqrt(sum x^2)
  Max,  // max |x|; 0 if there is no element
};

// Returns the norm of all elements of all tensors. Writes the norm of each tensor to `of_tensors`,
// if it is not empty. Sums are computed in double, in an order that depends only on the sizes; they
// cannot overflow. The norm is NaN if an element is NaN, otherwise inf if an element is inf. Here
// tensors may share memory. 4 bytes per element.
double list_norm(TensorList x, Executor& executor, NormKind kind = NormKind::L2,
                 std::span<double> of_tensors = {});

// y <- min(1, max_norm / (norm + 1e-6)) y, like PyTorch's clip_grad_norm_. Returns the norm before
// clipping. A NaN norm makes all elements NaN; an infinite norm makes infinities NaN and the rest
// 0. 4 bytes per element, and 8 more if it clips. An infinite max_norm only measures. Also throws
// Error{InvalidArgument} if max_norm is negative or NaN.
double list_clip_norm(TensorList y, double max_norm, Executor& executor,
                      NormKind kind = NormKind::L2);

}  // namespace hone::kernels
