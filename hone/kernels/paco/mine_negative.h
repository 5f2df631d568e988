// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/thread/executor.h"

namespace hone::kernels {

enum class MineMode {
  SemiHard,  // the nearest row beyond the positive, or, if there is none, the nearest row
  Hardest,   // the nearest row
};

// For each part (anchor) p of each image, a negative for the triplet loss: a row n of a pool,
// chosen by its distance q(p, n) = (p - n)^T Sigma^-1 (p - n) under the metric of the anchor's
// image, Sigma = delta I + A A^T of ridge_gram (semi-hard: Schroff et al., "FaceNet", 2015;
// hardest: Hermans et al., "In Defense of the Triplet Loss for Person Re-Identification", 2017).
// All matrices are row-major without gaps.
//
// The distances only rank and are not returned; compute those that enter a loss by ridge_distance.
// With V = L^-1 A^T, the pool's mean subtracted from p and n, and p' = p - V^T V p,
//   delta q = (|n|^2 - |V n|^2) + (|p|^2 - |V p|^2) - 2 <p', n>,
// the Woodbury form: (rank + parts) dim multiply-adds for each image and pool row. Each worker
// needs about (rank + parts) (8 dim + 64) + 16 dim doubles of scratch, or, with top_m,
// 64 parts + top_m (dim + rank); a copy of the pool is shared.
struct MineNegativeArgs {
  Index batch = 0, parts = 0, rank = 0, dim = 0, pool_rows = 0;
  const double* anchor = nullptr;  // [batch, parts, dim]
  // [batch, parts], q of each anchor and its positive, of ridge_distance; not read for Hardest.
  const double* positive_q = nullptr;
  const double* pool = nullptr;         // [pool_rows, dim]
  const Index* owner = nullptr;         // [pool_rows]: not for the anchors of this image; or null
  const Index* pool_label = nullptr;    // [pool_rows]: not for anchors with this label; or null
  const Index* anchor_label = nullptr;  // [batch], together with pool_label
  const double* factor = nullptr;       // [batch, rank, dim], A^T
  const double* chol = nullptr;         // [batch, rank, rank], L of ridge_gram
  const double* delta = nullptr;        // [batch]
  MineMode mode = MineMode::SemiHard;
  // Above 0, only the top_m allowed rows with the largest cosine to the anchor compete (norms are
  // at least 1e-12; of equal cosines the lowest rows). Where that excludes rows, those that compete
  // are ranked by ridge_distance.
  Index top_m = 0;
  Index* index = nullptr;         // [batch, parts], a row of the pool; 0 where none is found
  std::uint8_t* found = nullptr;  // [batch, parts], 1 where a row is chosen, else 0
};

// The lowest row wins if distances are equal; equal rows have equal distances. A row is beyond the
// positive if its distance exceeds positive_q by more than rounding can amount to, so that the
// positive itself, or its copy, is never beyond it. A row whose distance is not finite is not
// chosen and affects no other; an anchor or a metric that is not finite finds no row. A positive_q
// that is NaN or infinite has no row beyond it.
//
// Results do not depend on the number of workers. Without top_m, instruction sets with fused
// multiply-add give the same result; others, and the definition, choose another row only where
// distances differ by no more than rounding.
//
// Error{InvalidArgument} on negative batch, rank, pool_rows or top_m, on parts or dim that are not
// positive, on a delta that is not positive and finite, and where only one of the labels is given.
void mine_negative(const MineNegativeArgs& args, Executor& executor = serial_executor());

// The bytes that mine_negative allocates for itself at its peak, without top_m and with owner and
// labels. Reads the sizes in `args` alone.
Index mine_negative_bytes(const MineNegativeArgs& args, int workers);

// Plain loops over the definition with dense factorizations of Sigma; does not read chol. A row is
// beyond the positive if its distance is larger.
void mine_negative_ref(const MineNegativeArgs& args);

}  // namespace hone::kernels
