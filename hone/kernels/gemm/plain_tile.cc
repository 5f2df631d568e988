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

// Σ u·q − z·Σq of one block, exact.
Index block_sum(const TileArgs& args, const std::byte* record, Index row, Index lane, Index block) {
  const std::byte* panel = panel_of(args, lane);
  Index sum = 0;
  for (Index j = 0; j < kBlockCols; ++j) {
    const Index at = j / 4 * 16 + row % kRowGroup * 4 + j % 4;
    sum += panel_code(*args.layout, panel, lane % kPanelRows, block * kBlockCols + j) *
           std::to_integer<std::int8_t>(record[at]);
  }
  const auto negative_sum =
      load_from_panel<std::int32_t>(record + kInt8RecordSums + row % kRowGroup * 4);
  return sum + panel_zero(*args.layout, panel, lane % kPanelRows, block) * Index{negative_sum};
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
        const float w_scale =
            panel_scale(*args.layout, panel_of(args, lane), lane % kPanelRows, block);
        acc += static_cast<double>(block_sum(args, record, row, lane, block)) *
               (static_cast<double>(w_scale) * static_cast<double>(x_scale));
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
