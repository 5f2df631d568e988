// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/linalg/gram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/linalg/triangular.h"
#include "hone/kernels/product/product.h"

namespace hone::kernels {
namespace {

constexpr Index kTileRows = 96, kTileCols = 256;  // sums that stay in the level-2 cache

struct Tile {
  Index row = 0, col = 0, rows = 0, cols = 0;
};

// Covers the lower triangle of a matrix [n, n].
std::vector<Tile> tiles_of(Index n) {
  std::vector<Tile> tiles;
  for (Index row = 0; row < n; row += kTileRows) {
    const Index end = std::min(n, row + kTileRows);
    for (Index col = 0; col < end; col += kTileCols)
      tiles.push_back({row, col, end - row, std::min(kTileCols, end - col)});
  }
  return tiles;
}

// sums [tile.rows, tile.cols] = columns of x times columns of x
void multiply_tile(const float* x, Index rows, Index stride, const Tile& tile, float* sums) {
  multiply({.a = {x + tile.row, tile.rows, rows, 1, stride},
            .b = {x + tile.col, rows, tile.cols, stride, 1},
            .out = {sums, tile.rows, tile.cols, tile.cols, 1}},
           serial_executor());
}

}  // namespace

Gram::Gram(Index cols) : cols_(cols) {
  HONE_CHECK(cols > 0, "gram", "at least 1 column", cols);
  sums_ = Buffer(checked_mul(checked_mul(cols, cols, "gram"), sizeof(double), "gram"));
}

void Gram::add(const float* x, Index rows, Index stride, Executor& executor) {
  HONE_TRACE_ZONE("gram", {"rows", rows}, {"cols", cols_});
  HONE_CHECK(rows >= 0 && stride >= cols_, "gram", concat("a stride of at least ", cols_), stride);
  const std::vector<Tile> tiles = tiles_of(cols_);
  constexpr Index kFloats = kTileRows * kTileCols;
  const Buffer memory(executor.workers() * kFloats * static_cast<Index>(sizeof(float)));
  executor.parallel_for(std::ssize(tiles), 1, [&](Index begin, Index end, int worker) {
    float* sums = memory.as<float>() + worker * kFloats;
    for (Index at = begin; at < end; ++at) {
      const Tile& tile = tiles[static_cast<std::size_t>(at)];
      for (Index first = 0; first < rows; first += kGramRows) {
        multiply_tile(x + first * stride, std::min(kGramRows, rows - first), stride, tile, sums);
        for (Index i = 0; i < tile.rows; ++i) {
          double* to = sums_.as<double>() + (tile.row + i) * cols_ + tile.col;
          const Index count = std::min(tile.cols, tile.row + i + 1 - tile.col);
          for (Index j = 0; j < count; ++j) to[j] += static_cast<double>(sums[i * tile.cols + j]);
        }
      }
    }
  });
  rows_ += rows;
}

bool Gram::is_finite() const {
  for (Index row = 0; row < cols_; ++row) {
    for (Index col = 0; col <= row; ++col)
      if (!std::isfinite((*this)(row, col))) return false;
  }
  return true;
}

std::vector<double> Gram::full() const {
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(cols_ * cols_));
  for (Index i = 0; i < cols_; ++i)
    for (Index j = 0; j < cols_; ++j) out.push_back((*this)(i, j));
  return out;
}

Gram Gram::projected(std::span<const float> a, Executor& executor) const {
  const Index rows = std::ssize(a) / cols_;
  HONE_CHECK(rows > 0 && std::ssize(a) == rows * cols_, "gram", concat("rows of ", cols_),
             a.size());
  const std::vector<double> wide(a.begin(), a.end()), h = full();
  std::vector<double> half(wide.size());  // -A H, since H is symmetric
  subtract_product({.a = wide.data(),
                    .a_stride = cols_,
                    .b = h.data(),
                    .b_stride = cols_,
                    .c = half.data(),
                    .c_stride = cols_,
                    .rows = rows,
                    .cols = cols_,
                    .depth = cols_},
                   executor);
  Gram out(rows);
  out.rows_ = rows_;
  subtract_product({.a = half.data(),
                    .a_stride = cols_,
                    .b = wide.data(),
                    .b_stride = cols_,
                    .c = out.sums_.as<double>(),
                    .c_stride = rows,
                    .rows = rows,
                    .cols = rows,
                    .depth = cols_},
                   executor);
  return out;
}

}  // namespace hone::kernels
