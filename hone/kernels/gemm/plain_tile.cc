// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "hone/kernels/gemm/packed_rows.h"
#include "hone/kernels/gemm/panel.h"
#include "hone/kernels/gemm/tile.h"

namespace hone::kernels {
namespace {

const std::byte* panel_of(const TileArgs& args, Index lane) {
  return args.panels + lane / kPanelRows * args.layout->panel_bytes;
}

float float_x(const TileArgs& args, Index row, Index k) {
  const Index step = args.single_row ? 1 : kRowGroup;
  const std::byte* group = args.x + row / kRowGroup * args.x_group_bytes;
  return load_from_panel<float>(group + (k * step + row % kRowGroup) * 4);
}

// The columns that share a scale in every layout.
constexpr Index kHalf = kBlockCols / 2;

struct HalfSums {
  Index product = 0;  // Σ (u − z)·q
  Index codes = 0;    // Σ q
};

// The sums over 16 columns from k on, exact.
HalfSums half_sums(const TileArgs& args, const std::byte* record, Index row, Index lane, Index k) {
  const PanelLayout& layout = *args.layout;
  const std::byte* panel = panel_of(args, lane);
  const int zero = panel_zero(layout, panel, lane % kPanelRows, k / kBlockCols);
  HalfSums sums;
  for (Index i = k; i < k + kHalf; ++i) {
    const Index j = i % kBlockCols;
    const Index q = std::to_integer<std::int8_t>(record[row % kRowGroup * kBlockCols + j]);
    sums.product += (panel_code(layout, panel, lane % kPanelRows, i) - zero) * q;
    sums.codes += q;
  }
  return sums;
}

// What block `block` adds to an output, without the scale of the activations.
double block_product(const TileArgs& args, const std::byte* record, Index row, Index lane,
                     Index block) {
  const PanelLayout& layout = *args.layout;
  const std::byte* panel = panel_of(args, lane);
  double product = 0;
  for (Index k = block * kBlockCols; k < (block + 1) * kBlockCols; k += kHalf) {
    const HalfSums sums = half_sums(args, record, row, lane, k);
    const float scale = panel_scale(layout, panel, lane % kPanelRows, k);
    product += static_cast<double>(sums.product) * static_cast<double>(scale);
    if (!has_minimums(layout.kind)) continue;
    const float minimum = panel_minimum(layout, panel, lane % kPanelRows, block);
    product -= static_cast<double>(sums.codes) * static_cast<double>(minimum);
  }
  return product;
}

}  // namespace

void plain_int8_tile(const TileArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const std::byte* group = args.x + row / kRowGroup * args.x_group_bytes;
    for (Index lane = 0; lane < args.panel_count * kPanelRows; ++lane) {
      double acc = 0;
      for (Index block = 0; block < args.layout->blocks; ++block) {
        const std::byte* record = group + block * kInt8Record;
        const auto x_scale =
            load_from_panel<float>(record + kInt8RecordScales + row % kRowGroup * 4);
        acc += block_product(args, record, row, lane, block) * static_cast<double>(x_scale);
      }
      args.out[row * args.out_stride + lane] = static_cast<float>(acc);
    }
  }
}

void plain_float_tile(const TileArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    for (Index lane = 0; lane < args.panel_count * kPanelRows; ++lane) {
      double acc = 0;
      for (Index k = 0; k < args.layout->cols; ++k) {
        const float w = panel_value(*args.layout, panel_of(args, lane), lane % kPanelRows, k);
        acc += static_cast<double>(w) * static_cast<double>(float_x(args, row, k));
      }
      args.out[row * args.out_stride + lane] = static_cast<float>(acc);
    }
  }
}

}  // namespace hone::kernels
