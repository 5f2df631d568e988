// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/compress/method/round.h"
#include "hone/core/buffer.h"
#include "hone/kernels/linalg/gram.h"

namespace hone::compress {

struct FeedbackOptions {
  bool act_order = true;  // columns with larger inputs are rounded first
  double damp = 0.01;     // of the mean of the diagonal, which is added to it
};

// How the error of a rounded weight is made up for by the weights of its row that are rounded
// later. With the second moments H of a product's inputs, the error of the outputs of a row is
//   Σ_i pivot_i (δ_i + Σ_{j before i} δ_j factor_ij)²,
// where δ are the errors of its weights in the order of rounding, and H = R Rᵀ with R upper
// triangular, pivot_i = R_ii², factor_ij = R_ji / R_ii. Rounding w_i + Σ_j δ_j factor_ij to the
// nearest level is then the best choice one weight at a time. This equals GPTQ (Frantar et al.,
// "GPTQ: accurate post-training quantization", 2023; Chee et al., "QuIP", 2023, theorem 6).
class ErrorFeedback {
 public:
  // Raises the damping tenfold until H is positive definite, so that it never fails for finite
  // inputs; inputs that are all 0 give plain rounding. Throws Error{CorruptFile} that names `name`
  // for inputs that are not finite.
  ErrorFeedback(const kernels::Gram& inputs, const FeedbackOptions& options, std::string_view name,
                Executor& executor);

  Index cols() const { return static_cast<Index>(order_.size()); }
  std::span<const Index> order() const { return order_; }  // columns in the order of rounding
  double pivot(Index at) const { return pivots_[static_cast<std::size_t>(at)]; }
  // factor_ij for j < at.
  const double* factors(Index at) const { return factors_.as<double>() + at * cols(); }
  double damping() const { return damping_; }  // added to the diagonal of H

  // Mean over rows of the error of outputs for rows of errors [rows, cols] in the order of columns
  // of the matrix.
  double output_error(std::span<const double> errors, Executor& executor) const;

 private:
  std::vector<Index> order_;
  std::vector<double> pivots_;
  Buffer factors_;
  double damping_ = 0;
};

// The diagonal of H divided by its mean, as the importance of columns.
std::vector<float> importance_of(const kernels::Gram& inputs);

// Rounds a matrix with error feedback and the scales of fit_matrix(). Weights that are 0 stay 0
// where the format has a code for it, so that pruned ones do not come back.
EncodedMatrix round_with_feedback(const WeightFormat& format, const WeightMatrix& matrix,
                                  std::span<const BlockScales> scales,
                                  const ErrorFeedback& feedback, Executor& executor);

// Sets a fraction of the weights to 0, rounded to a whole number for each block of 128 columns in
// the order of rounding, and changes those behind each of them to make up for it. Those go whose
// loss pivot_i w_i² is least in the block. This equals SparseGPT (Frantar and Alistarh, "SparseGPT:
// massive language models can be accurately pruned in one-shot", 2023). Returns the weights [rows,
// cols].
std::vector<float> prune_with_feedback(const WeightMatrix& matrix, double sparsity,
                                       const ErrorFeedback& feedback, Executor& executor);

// Error of the outputs divided by their size, Σ ‖(W - Ŵ) x‖² / Σ ‖W x‖², over at most 128 rows that
// are spread over the matrix.
double relative_output_error(const WeightMatrix& matrix, const StoredMatrix& stored,
                             const ErrorFeedback& feedback, Executor& executor);

// A matrix in codes, and how they were chosen.
struct Encoding {
  EncodedMatrix matrix;
  std::vector<BlockScales> scales;
  std::string_view algorithm;                // "rtn", "importance" or "gptq"
  double rounded_error = 0, best_error = 0;  // of outputs, with `feedback`: rounded, and as chosen
};

// Rounds with scales that weigh columns by `inputs`, if it is not null; with error feedback, if
// `feedback` is not null, unless plain rounding has the smaller error of outputs.
Encoding encode_matrix(const WeightFormat& format, const WeightMatrix& matrix,
                       const FitOptions& options, const kernels::Gram* inputs,
                       const ErrorFeedback* feedback, Executor& executor);

}  // namespace hone::compress
