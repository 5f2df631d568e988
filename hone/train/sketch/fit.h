// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <string_view>
#include <utility>

#include "hone/core/index.h"

// Factors that approximate a trained weight [out, in] of LibTorch, the transpose of W [in, out].
// All functions are without gradient, and throw Error{InvalidArgument} for sizes that do not fit
// and for NaN or infinity in the weight. They compute in f64 for a weight of f64 or with input
// moments, otherwise in f32, and return the weight's type and device. Errors are Frobenius norms.
namespace hone::sketch {

// A layer's two trained matrices: of a low-rank layer a [rank, in] and b [rank, out], W ≈ aᵀ b; of
// a sketched one s1 [width, in] and s2 [width, out].
using FactorPair = std::pair<torch::Tensor, torch::Tensor>;

// The signs that a sketched layer keeps fixed.
struct FixedSigns {
  torch::Tensor u1, u2;  // [width, out] and [width, in], entries ±1/√low_rank
  Index terms = 1;       // width = terms * low_rank
};

// Mean and second moment of a layer's inputs, in f64.
struct InputMoments {
  torch::Tensor second, mean;  // [in, in], [in]
  Index rows = 0;

  // Adds the rows of x [..., in]. Error{InvalidArgument}, and nothing is added, for another width,
  // NaN and infinity.
  void add(const torch::Tensor& x);
};

// Error{InvalidArgument} "The <what> has NaN or infinity in it." The tensor may be undefined.
void check_finite(std::string_view call, std::string_view what, const torch::Tensor& tensor);

// s1_t = W u1_tᵀ and s2_t = u2_tᵀ W: the copy of the weight that is right on average over the
// signs. Its relative error is √((in + out - 2) / (4 width)) in root mean square, above that of W =
// 0 wherever the layer saves numbers. For comparison with libraries that start so.
FactorPair fit_random(const torch::Tensor& weight, const FixedSigns& signs);

// The s1 and s2 of least error for the given signs. It is that of (I - P2) W (I - P1) with the
// orthogonal projections P1 on the rows of u1 and P2 on the columns of u2ᵀ: by expectation a share
// (1 - width/in) (1 - width/out) of |W|². With the moments of the inputs x, the least error of x W.
FactorPair fit_projection(const torch::Tensor& weight, const FixedSigns& signs,
                          const InputMoments* inputs = nullptr);

// The a and b of least error, whose square is the sum of the squares of all but the first `rank`
// singular values (Eckart and Young), with a aᵀ = b bᵀ. With the moments of the inputs x, the least
// error of x W: by the singular values of Lᵀ W, where L Lᵀ is the second moment (SVD-LLM, arXiv
// 2403.07378). Up to rank 64 of 512 x 512, or an eighth of the smaller side of a larger weight, the
// SVD is linalg::randomized_svd, whose error is rarely more than 1.01 times the least.
FactorPair fit_svd(const torch::Tensor& weight, Index rank, const InputMoments* inputs = nullptr);
// Whether it is LAPACK's SVD for a weight of this smaller side.
bool is_fit_svd_exact(Index side, Index rank);

// The smallest rank for which fit_svd has a relative error of at most max_error, at least 1.
Index rank_for_error(const torch::Tensor& weight, double max_error,
                     const InputMoments* inputs = nullptr);

// The factors of smallest rank whose product is within the relative error of aᵀ b; O((in + out)
// rank²).
FactorPair recompress(const FactorPair& factors, double max_error);

// For a fixed mixing matrix u [rank, out], the s [rank, in] of least error of W ≈ sᵀ u.
torch::Tensor fit_one_sided(const torch::Tensor& weight, const torch::Tensor& u);

}  // namespace hone::sketch
