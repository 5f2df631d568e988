// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/compress/method/round.h"
#include "hone/kernels/linalg/gram.h"

namespace hone::compress {

struct RemovalOptions {
  Index unit = 1;      // consecutive columns that go together
  Index groups = 1;    // consecutive units form groups of equal size
  Index removed = 0;   // units that go in each group
  bool repair = true;  // whether the remaining columns make up for those that go
  double damp = 0.3;   // of the diagonal of H, which is added to it
};

// A product without some of its inputs.
struct Removal {
  std::vector<Index> kept;     // columns, ascending
  std::vector<float> weights;  // [rows, kept]
  // Errors of the outputs divided by their size, Σ ‖(W - W') x‖² / Σ ‖W x‖² over a sample of rows:
  // with the weights above, and if the columns were left out without a repair.
  double error = 0, error_unrepaired = 0;
};

// Chooses which inputs of a product go, so that its outputs W x change little for inputs with the
// second moments H. Without a repair, those whose share of the outputs' energy is least:
// tr(W_S H_SS W_Sᵀ) for the columns S of a unit. With it, one unit after another by the loss that
// remains after the best change of all other columns,
//   tr(W_S (G_SS)⁻¹ W_Sᵀ) with G = (H + D)⁻¹ of the columns that are left,
// which the removal then applies (optimal brain surgeon: Hassibi and Stork, 1993). The result is
//   W' = W (H + D)_:P ((H + D)_PP)⁻¹ for the kept columns P.
// D is a fraction of the diagonal of H, which keeps the change small where inputs are rarely large:
// much of it makes the choice that of least energy. Some of the mean is added until H + D is
// positive definite, so that no input fails.
Removal remove_inputs(const kernels::Gram& inputs, const WeightMatrix& matrix,
                      const RemovalOptions& options, Executor& executor);

}  // namespace hone::compress
