// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "hone/compress/method/round.h"
#include "hone/kernels/linalg/gram.h"

namespace hone::compress {

// A matrix W [rows, cols] as the product B A of thin ones.
struct ThinFactors {
  Index rank = 0;
  std::vector<float> a;  // [rank, cols]
  std::vector<float> b;  // [rows, rank]
  double loss = 0;       // ‖(W - B A) x‖² / ‖W x‖², as the singular values predict it
};

// Chooses the rank for singular values squared, in falling order.
using ChooseRank = std::function<Index(std::span<const double> squares)>;

// The best factors of a rank. Without inputs they minimize ‖W - B A‖: the singular value
// decomposition. With the second moments H = S Sᵀ of inputs they minimize the error of the outputs,
// Σ ‖(W - B A) x‖², by that of W S = U Σ Vᵀ; the error is then the sum of σ_i² for i ≥ rank.
// With the eigenvectors U of W H Wᵀ, B = U_r and A = U_rᵀ W; where W has more rows than columns,
// with those of Sᵀ Wᵀ W S, B = W S V_r and A = V_rᵀ S⁻¹.
// Rows of A and columns of B are scaled to the same size.
// λ = 10⁻⁶ of the mean of the diagonal is added to H, and ten times as much until it has a factor.
ThinFactors factor_matrix(const WeightMatrix& matrix, const kernels::Gram* inputs,
                          const ChooseRank& choose, Executor& executor);

}  // namespace hone::compress
