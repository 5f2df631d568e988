// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/schedule/element_pass.h"

namespace hone::kernels {
namespace {

void axpby_ref(const ElementPiece& piece, float a, float b) {
  for (Index i = 0; i < piece.length; ++i) {
    piece.out[i] = static_cast<float>(static_cast<double>(a) * piece.x[i] +
                                      static_cast<double>(b) * piece.y[i]);
  }
}

void multiply_ref(const ElementPiece& piece) {
  for (Index i = 0; i < piece.length; ++i) piece.out[i] = piece.x[i] * piece.y[i];
}

void clamp_ref(const ElementPiece& piece, float lowest, float highest) {
  for (Index i = 0; i < piece.length; ++i) {
    const float raised = piece.x[i] < lowest ? lowest : piece.x[i];
    piece.out[i] = raised > highest ? highest : raised;
  }
}

void scale_ref(const ElementPiece& piece, float factor) {
  for (Index i = 0; i < piece.length; ++i) piece.out[i] = piece.x[i] * factor;
}

void average_ref(const ElementPiece& piece, float share) {
  for (Index i = 0; i < piece.length; ++i) {
    const double kept = piece.y[i];
    piece.out[i] = static_cast<float>(kept + static_cast<double>(share) * (piece.x[i] - kept));
  }
}

}  // namespace

ElementPass element_pass_ref() {
  return {axpby_ref, multiply_ref, clamp_ref, scale_ref, average_ref};
}

}  // namespace hone::kernels
