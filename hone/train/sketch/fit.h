// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <string_view>
#include <utility>

#include "hone/core/index.h"

// Factors that approximate a trained LibTorch weight [out, in], the transpose of W [in, out]. All
// functions are without gradient, and throw Error{InvalidArgument} for sizes that do not fit and
// for NaN or infinity in the weight. They compute in f64 for an f64 weight or with input moments,
// otherwise in f32, and return the weight's type and device. Errors are Frobenius norms.
namespace hone::sketch {

// The two trained matrices of a layer. Low-rank: a [rank, in] and b [rank, out], W ≈ aᵀ b.
// Sketched: s1 [width, in] and s2 [width, out].
using FactorPair = std::pair<torch::Tensor, torch::Tensor>;

// The signs that a sketched layer keeps fixed.
struct FixedSigns {
  torch::Tensor u1, u2;  // [width, out] and [width, in], entries ±1/√low_rank
  Index terms = 1;       // width = terms * low_rank
};

// The mean of a layer's inputs x, and the sum from which their second moment follows, in f64.
struct InputMoments {
  torch::Tensor second, mean;  // sum of xᵀ x over all rows [in, in], mean [in]
  Index rows = 0;

  // Adds the rows of x [..., in]. Throws Error{InvalidArgument}, and adds nothing, for another
  // width, NaN and infinity.
  void add(const torch::Tensor& x);
};

// Throws Error{InvalidArgument} "The <what> has NaN or infinity in it." The tensor may be
// undefined.
void check_finite(std::string_view call, std::string_view what, const torch::Tensor& tensor);

// Computes s1 = u1 Wᵀ and s2 = u2 W. The expectation of the approximation over the signs is the
// weight. Its relative error is √((in + out - 2) / (4 width)) in root mean square. If the layer is
// smaller than the dense one, this exceeds the error of W = 0. For comparison with libraries that
// initialize this way.
FactorPair fit_random(const torch::Tensor& weight, const FixedSigns& signs);

// Computes the s1 and s2 with the least error for the given signs. That error is |(I - P2) W (I -
// P1)|, with the orthogonal projections P1 on the rows of u1 and P2 on the columns of u2ᵀ. Its
// expected square is (1 - width/in) (1 - width/out) |W|². With the moments of the inputs x,
// minimizes the error of x W.
FactorPair fit_projection(const torch::Tensor& weight, const FixedSigns& signs,
                          const InputMoments* inputs = nullptr);

// Computes the a and b with the least error, where a aᵀ = b bᵀ. The squared error is the sum of the
// squares of all but the first `rank` singular values (Eckart and Young). With the moments of the
// inputs x, minimizes the error of x W by the singular values of Lᵀ W, where L Lᵀ is the second
// moment (SVD-LLM, arXiv 2403.07378). If is_fit_svd_exact() is false, uses linalg::randomized_svd,
// whose error is near the least.
FactorPair fit_svd(const torch::Tensor& weight, Index rank, const InputMoments* inputs = nullptr);
// True if fit_svd uses LAPACK's SVD for a weight with this smaller side: for sides below 512, and
// ranks above an eighth of the side.
bool is_fit_svd_exact(Index side, Index rank);

// Returns the smallest rank, at least 1, for which fit_svd has a relative error of at most
// max_error.
Index rank_for_error(const torch::Tensor& weight, double max_error,
                     const InputMoments* inputs = nullptr);

// Returns the factors of smallest rank whose product is within the relative error of aᵀ b. Takes
// O((in + out) rank²).
FactorPair recompress(const FactorPair& factors, double max_error);

// Returns the s [rank, in] with the least error of W ≈ sᵀ u for a fixed mixing matrix u [rank,
// out].
torch::Tensor fit_one_sided(const torch::Tensor& weight, const torch::Tensor& u);

}  // namespace hone::sketch
