// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/buffer.h"
#include "hone/kernels/paco/mine_negative.h"

namespace hone::kernels {

// The pool in the layout for the loops of mine_negative: panels of kPanelRows rows, each stored
// column by column. Rows beyond the pool are zero and have infinite squares.
struct MinePool {
  static constexpr Index kPanelRows = 16, kTileRows = 64;

  // Subtracts the mean of the rows unless `centered` is false.
  MinePool(const MineNegativeArgs& args, bool centered, Executor& executor);

  // Returns its size in numbers of 8 bytes, with owner and label.
  static Index numbers(const MineNegativeArgs& args) {
    return args.dim + round_up(args.pool_rows, kPanelRows) * (args.dim + 3);
  }

  Index panel_count() const { return ceil_div(rows, kPanelRows); }
  const double* panel(Index at) const { return panels.as<double>() + at * dim * kPanelRows; }

  Index rows, dim;
  std::vector<double> center;       // [dim]: the mean of the finite rows, or zeros
  Buffer panels;                    // [panel_count, dim, kPanelRows]
  std::vector<double> squares;      // [panel_count * kPanelRows], |row|^2 of the stored rows
  std::vector<Index> owner, label;  // copies with padding; empty if the argument is null
};

// The metric and the anchors of one image, prepared for products with the pool.
struct MineImage {
  Index rank = 0, parts = 0, dim = 0;
  const double* factor = nullptr;  // [rank, dim]
  const double* chol = nullptr;    // [rank, rank]
  const double* anchor = nullptr;  // [parts, dim]
  const double* center = nullptr;  // [dim]
  double* vectors = nullptr;       // out [rank + parts, dim]: V = L^-1 A^T, then p' = p - V^T V p
  double* square = nullptr;        // out [parts], |p|^2 after subtracting the center
  double* own = nullptr;           // out [parts], |p|^2 - |V p|^2
  double* panel = nullptr;         // scratch [dim, kPanelRows]
  double* products = nullptr;      // scratch [rank, kTileRows]
};

// Up to kTileRows rows of the pool under the metric of one image.
struct MineTile {
  Index rank = 0, parts = 0, rows = 0;  // rows: a multiple of kPanelRows
  const double* squares = nullptr;      // [rows]
  const Index* owner = nullptr;         // [rows] or null
  const Index* label = nullptr;         // [rows] or null
  Index image = 0, image_label = 0;
  double inverse_delta = 0;
  const double* own = nullptr;        // [parts], |p|^2 - |V p|^2
  const double* threshold = nullptr;  // [parts]: larger distances are beyond the positive
  // [rank + parts, kTileRows]. In: V n, then <p', n>, which are replaced by q. q is infinite if a
  // row is not allowed or its distance is not finite.
  double* products = nullptr;
  double* lowest = nullptr;         // [parts], out
  double* lowest_beyond = nullptr;  // [parts], out
};

}  // namespace hone::kernels
