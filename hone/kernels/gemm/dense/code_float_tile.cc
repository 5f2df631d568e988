// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/gemm/dense/float_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/gemm/dense/code_float_tile.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/gemm/dense/float_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// At most four columns, because the decoder needs the other registers.
void float_tile_code8(const TileArgs& args) { run_tile<CodeReader<PanelKind::Code8>, 4>(args); }
void float_tile_code4(const TileArgs& args) { run_tile<CodeReader<PanelKind::Code4>, 4>(args); }
void float_tile_min5(const TileArgs& args) { run_tile<CodeReader<PanelKind::Min5>, 4>(args); }
void float_tile_min4(const TileArgs& args) { run_tile<CodeReader<PanelKind::Min4>, 4>(args); }
void float_tile_half6(const TileArgs& args) { run_tile<CodeReader<PanelKind::Half6>, 4>(args); }

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(float_tile_code8);
HWY_EXPORT(float_tile_code4);
HWY_EXPORT(float_tile_min5);
HWY_EXPORT(float_tile_min4);
HWY_EXPORT(float_tile_half6);

TileFunction code_float_tile(PanelKind kind) {
  switch (kind) {
    case PanelKind::Code8:
      return [](const TileArgs& args) { HWY_DYNAMIC_DISPATCH(float_tile_code8)(args); };
    case PanelKind::Min5:
      return [](const TileArgs& args) { HWY_DYNAMIC_DISPATCH(float_tile_min5)(args); };
    case PanelKind::Min4:
      return [](const TileArgs& args) { HWY_DYNAMIC_DISPATCH(float_tile_min4)(args); };
    case PanelKind::Half6:
      return [](const TileArgs& args) { HWY_DYNAMIC_DISPATCH(float_tile_half6)(args); };
    default:
      return [](const TileArgs& args) { HWY_DYNAMIC_DISPATCH(float_tile_code4)(args); };
  }
}

}  // namespace hone::kernels
#endif
