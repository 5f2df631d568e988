// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/thread/executor.h"

namespace hone::kernels {

enum class MineMode {
  SemiHard,  // the nearest row beyond the positive, or, if there is none, the nearest row
  Hardest,   // the nearest row
};

// For each part (anchor) p of each image, selects a negative for the triplet loss: a row n of a
// pool, chosen by its distance q(p, n) = (p - n)^T Sigma^-1 (p - n) under the metric of the
// anchor's image, Sigma = delta I + A A^T of ridge_gram (semi-hard: Schroff et al., "FaceNet",
// 2015; hardest: Hermans et al., "In Defense of the Triplet Loss for Person Re-Identification",
// 2017). All matrices are row-major without gaps.
//
// The distances are used only for ranking and are not returned; compute distances for a loss with
// ridge_distance. With V = L^-1 A^T, the pool's mean subtracted from p and n, and p' = p - V^T V p,
//   delta q = (|n|^2 - |V n|^2) + (|p|^2 - |V p|^2) - 2 <p', n>.
// This Woodbury form takes (rank + parts) dim multiply-adds for each image and pool row. Each
// worker needs about (rank + parts) (8 dim + 64) + 16 dim doubles of scratch or, with top_m, 64
// parts + top_m (dim + rank). All workers share a copy of the pool.
struct MineNegativeArgs {
  Index batch = 0, parts = 0, rank = 0, dim = 0, pool_rows = 0;
  const double* anchor = nullptr;  // [batch, parts, dim]
  // [batch, parts], q of each anchor and its positive, from ridge_distance; not read for Hardest.
  const double* positive_q = nullptr;
  const double* pool = nullptr;         // [pool_rows, dim]
  const Index* owner = nullptr;         // [pool_rows]: excluded for anchors of this image; or null
  const Index* pool_label = nullptr;    // [pool_rows]: excluded for anchors of this label; or null
  const Index* anchor_label = nullptr;  // [batch], together with pool_label
  const double* factor = nullptr;       // [batch, rank, dim], A^T
  const double* chol = nullptr;         // [batch, rank, rank], L of ridge_gram
  const double* delta = nullptr;        // [batch]
  MineMode mode = MineMode::SemiHard;
  // Above 0: only the top_m allowed rows with the largest cosine to the anchor compete (norms are
  // at least 1e-12; of equal cosines, the lowest rows). If that excludes rows, the competing rows
  // are ranked by ridge_distance.
  Index top_m = 0;
  Index* index = nullptr;         // [batch, parts], a row of the pool; 0 if none is found
  std::uint8_t* found = nullptr;  // [batch, parts], 1 if a row is chosen, otherwise 0
};

// The lowest row wins if distances are equal; equal rows have equal distances. A row is beyond the
// positive if its distance exceeds positive_q by more than rounding error, so the positive itself,
// or its copy, is never beyond it. A row whose distance is not finite is not chosen and affects no
// other row. An anchor or a metric that is not finite finds no row. No row is beyond a positive_q
// that is NaN or infinite.
//
// Results do not depend on the number of workers. Without top_m, instruction sets with fused
// multiply-add give the same result. Others, and the definition, choose another row only if
// distances differ by no more than rounding.
//
// Throws Error{InvalidArgument} for negative batch, rank, pool_rows or top_m, and for parts or dim
// that are not positive. Also throws for a delta that is not positive and finite, or if only one of
// the labels is set.
void mine_negative(const MineNegativeArgs& args, Executor& executor = serial_executor());

// Returns the peak number of bytes that mine_negative allocates, without top_m and with owner and
// labels. Reads only the sizes in `args`.
Index mine_negative_bytes(const MineNegativeArgs& args, int workers);

// Reference: plain loops over the definition with dense factorizations of Sigma; does not read
// chol. A row is beyond the positive if its distance is larger.
void mine_negative_ref(const MineNegativeArgs& args);

}  // namespace hone::kernels
