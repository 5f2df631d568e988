// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

// Lists of LibTorch's tensors in tests.
namespace hone::test {

using Tensors = std::vector<at::Tensor>;

// Detached clones.
Tensors copies(const Tensors& tensors);
// Equal lengths, shapes and numbers.
bool equal(const Tensors& a, const Tensors& b);
// max |a - b| / max(1, |b|) over all elements of all tensors; NaN if one is, and infinite for lists
// of different lengths.
double worst_difference(const Tensors& a, const Tensors& b);
// max |got - want| / max |want|, in double precision.
double relative_error(const at::Tensor& got, const at::Tensor& want);

}  // namespace hone::test
