// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone::kernels {

// Dense pieces of a step's slots, or of the tensors of multi_tensor_list.h. `out` may be x or y.
struct ElementPiece {
  float* out = nullptr;
  const float* x = nullptr;
  const float* y = nullptr;
  Index length = 0;
};

// The functions for the strongest enabled instruction set, for callers that process many pieces.
// (Norms are in MeasureNorm.) An element's result does not depend on its position in a piece.
struct ElementPass {
  void (*axpby)(const ElementPiece& piece, float a, float b);             // out = a x + b y
  void (*multiply)(const ElementPiece& piece);                            // out = x y
  void (*clamp)(const ElementPiece& piece, float lowest, float highest);  // limits x; NaN stays NaN
  void (*scale)(const ElementPiece& piece, float factor);                 // out = factor x
  void (*average)(const ElementPiece& piece, float share);                // out = y + share (x - y)
};
ElementPass choose_element_pass();

// References: plain loops.
ElementPass element_pass_ref();

}  // namespace hone::kernels
