// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/gemm/tile.h"

// int8 activations x Code8 or Code4 panels; TileArgs::x holds Int8 records (packed_rows.h). One
// file per instruction set; variant.cc says which of them may run.

namespace hone::kernels {

void int_tile8_avx2(const TileArgs& args);
void int_tile4_avx2(const TileArgs& args);
void int_tile8_avxvnni(const TileArgs& args);
void int_tile4_avxvnni(const TileArgs& args);
void int_tile8_avx512(const TileArgs& args);
void int_tile4_avx512(const TileArgs& args);
void int_tile8_avx512vnni(const TileArgs& args);
void int_tile4_avx512vnni(const TileArgs& args);

}  // namespace hone::kernels
