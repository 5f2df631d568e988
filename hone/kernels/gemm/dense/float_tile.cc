// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/gemm/dense/float_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/gemm/dense/float_tile.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/gemm/dense/float_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

void float_tile_f32(const TileArgs& args) {
  run_tile<DenseReader<PanelKind::F32>, kWidestTile>(args);
}
void float_tile_f16(const TileArgs& args) {
  run_tile<DenseReader<PanelKind::F16>, kWidestTile>(args);
}
void float_tile_bf16(const TileArgs& args) {
  run_tile<DenseReader<PanelKind::BF16>, kWidestTile>(args);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(float_tile_f32);
HWY_EXPORT(float_tile_f16);
HWY_EXPORT(float_tile_bf16);

// Dispatching costs a load and an indirect call per tile, which takes some microseconds.
TileFunction dense_float_tile(PanelKind kind) {
  switch (kind) {
    case PanelKind::F16:
      return [](const TileArgs& args) { HWY_DYNAMIC_DISPATCH(float_tile_f16)(args); };
    case PanelKind::BF16:
      return [](const TileArgs& args) { HWY_DYNAMIC_DISPATCH(float_tile_bf16)(args); };
    default:
      return [](const TileArgs& args) { HWY_DYNAMIC_DISPATCH(float_tile_f32)(args); };
  }
}

}  // namespace hone::kernels
#endif
