// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see epilogue.cc.
#if defined(HONE_KERNELS_GEMM_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_GEMM_EPILOGUE_INL_H_
#undef HONE_KERNELS_GEMM_EPILOGUE_INL_H_
#else
#define HONE_KERNELS_GEMM_EPILOGUE_INL_H_
#endif

#include "hone/kernels/activation/gelu-inl.h"
#include "hone/kernels/gemm/epilogue_tile.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// activation(gate) * up. Processes whole panels, so that an output's lane does not depend on its
// tile.
template <class Apply>
HWY_INLINE void gate_tile(const EpilogueTile& tile, Apply apply) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index m = 0; m < tile.rows; ++m) {
    float* row = tile.values + m * tile.stride;
    for (Index pair = 0; pair < tile.panels / 2; ++pair) {
      const float* gate = row + 2 * pair * kPanelRows;
      for (Index i = 0; i < kPanelRows; i += lanes) {
        const auto up = hn::Load(d, gate + kPanelRows + i);
        const auto gated = hn::Mul(apply(d, hn::Load(d, gate + i)), up);
        hn::Store(gated, d, row + pair * kPanelRows + i);
      }
    }
  }
}

void silu_gate_tile(const EpilogueTile& tile) {
  gate_tile(tile, [](auto d, auto v) HWY_ATTR { return silu(d, v); });
}

void gelu_gate_tile(const EpilogueTile& tile) {
  gate_tile(tile, [](auto d, auto v) HWY_ATTR { return gelu_tanh(d, v); });
}

void gelu_tile(const EpilogueTile& tile) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index m = 0; m < tile.rows; ++m) {
    float* row = tile.values + m * tile.stride;
    for (Index i = 0; i < tile.panels * kPanelRows; i += lanes)
      hn::Store(gelu_tanh(d, hn::Load(d, row + i)), d, row + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
