// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone::kernels {

// Dense pieces of the tensors of multi_tensor_list.h; `out` may be x or y.
struct ListPiece {
  float* out = nullptr;
  const float* x = nullptr;
  const float* y = nullptr;
  Index length = 0;
};

// The functions for the strongest enabled instruction set. (Scaling is in FinishPass, norms
// in MeasureNorm.) An element's result does not depend on where in a piece it lies.
struct ListPass {
  void (*axpby)(const ListPiece& piece, float a, float b);             // out = a x + b y
  void (*multiply)(const ListPiece& piece);                            // out = x y
  void (*clamp)(const ListPiece& piece, float lowest, float highest);  // of x
};
ListPass choose_list_pass();

// The same as plain loops.
ListPass list_pass_ref();

}  // namespace hone::kernels
