// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/gemm/epilogue.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/gemm/epilogue.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/gemm/epilogue-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(silu_gate_tile);
HWY_EXPORT(gelu_gate_tile);
HWY_EXPORT(gelu_tile);

namespace {

void add(const float* values, Index count, float* to) {
  for (Index i = 0; i < count; ++i) to[i] += values[i];
}

void add_bias(const EpilogueTile& tile, const float* bias) {
  for (Index m = 0; m < tile.rows; ++m) {
    add(bias + tile.first_output, tile.outputs, tile.values + m * tile.stride);
  }
}

void add_gate_up_bias(const EpilogueTile& tile, const float* bias, Index total_outputs) {
  for (Index i = 0; i < tile.outputs; i += kPanelRows) {
    const Index count = std::min(kPanelRows, tile.outputs - i);
    const float* gate = bias + tile.first_output + i;
    for (Index m = 0; m < tile.rows; ++m) {
      float* to = tile.values + m * tile.stride + 2 * i;
      add(gate, count, to);
      add(gate + total_outputs, count, to + kPanelRows);
    }
  }
}

}  // namespace

void finish_tile(const EpilogueTile& tile, const Epilogue& epilogue, Index total_outputs) {
  const bool gated = is_gated(epilogue.activation);
  if (epilogue.bias != nullptr) {
    gated ? add_gate_up_bias(tile, epilogue.bias, total_outputs) : add_bias(tile, epilogue.bias);
  }
  switch (epilogue.activation) {
    case Activation::None:
      return;
    case Activation::SiluGate:
      return HWY_DYNAMIC_DISPATCH(silu_gate_tile)(tile);
    case Activation::GeluTanhGate:
      return HWY_DYNAMIC_DISPATCH(gelu_gate_tile)(tile);
    case Activation::GeluTanh:
      return HWY_DYNAMIC_DISPATCH(gelu_tile)(tile);
  }
}

void store_tile(const EpilogueTile& tile, const float* residual, Index residual_stride, float* y,
                Index y_stride) {
  for (Index m = 0; m < tile.rows; ++m) {
    const float* from = tile.values + m * tile.stride;
    float* to = y + m * y_stride + tile.first_output;
    if (residual == nullptr) {
      std::memcpy(to, from, static_cast<std::size_t>(tile.outputs) * sizeof(float));
      continue;
    }
    const float* addend = residual + m * residual_stride + tile.first_output;
    for (Index i = 0; i < tile.outputs; ++i) to[i] = from[i] + addend[i];
  }
}

}  // namespace hone::kernels
#endif
