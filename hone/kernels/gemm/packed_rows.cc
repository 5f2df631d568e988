// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/gemm/packed_rows.h"

#include <algorithm>
#include <cstring>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/gemm/packed_rows.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/gemm/packed_rows-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(quantize_one_row);
HWY_EXPORT(interleave_four_rows);

namespace {

// The minimum number of elements per worker, because a region costs some microseconds.
constexpr Index kElementsPerChunk = Index{1} << 16;

void check_rows(std::string_view op, Index rows, Index cols, Index stride) {
  HONE_CHECK(rows >= 0 && cols >= 0, op, "sizes >= 0", concat("[", rows, ", ", cols, "]"));
  HONE_CHECK(rows <= 1 || stride >= cols, op, concat("a stride of at least ", cols), stride);
}

// Calls body(first row, rows) for groups of up to four rows.
template <class Body>
void for_row_groups(Index rows, Index cols, Executor& executor, const Body& body) {
  const Index groups = ceil_div(rows, kRowGroup);
  const Index grain = std::max<Index>(1, kElementsPerChunk / std::max<Index>(1, kRowGroup * cols));
  const auto run = [&](Index begin, Index end, int) {
    for (Index group = begin; group < end; ++group) {
      body(group, std::min(kRowGroup, rows - group * kRowGroup));
    }
  };
  if (groups <= grain) return run(0, groups, 0);
  executor.parallel_for(groups, grain, run);
}

}  // namespace

void PackedRows::reshape(Act act, Index rows, Index cols) {
  act_ = act;
  rows_ = rows;
  cols_ = cols;
  const Index per_row = static_cast<Index>(sizeof(float)) * cols;
  if (act == Act::Int8) {
    group_bytes_ = ceil_div(cols, kBlockCols) * kInt8Record;
  } else {
    group_bytes_ = rows == 1 ? per_row : kRowGroup * per_row;
  }
  const Index bytes = ceil_div(rows, kRowGroup) * group_bytes_;
  if (bytes > buffer_.bytes()) buffer_ = Buffer(bytes);
}

void PackedRows::unpack_row(Index row, std::span<float> out) const {
  HONE_CHECK(row >= 0 && row < rows_, "unpack_row", concat("a row below ", rows_), row);
  HONE_CHECK(static_cast<Index>(out.size()) == cols_, "unpack_row", concat(cols_, " values"),
             out.size());
  const std::byte* group = data() + row / kRowGroup * group_bytes_;
  const Index lane = row % kRowGroup, step = rows_ == 1 ? 1 : kRowGroup;
  for (Index k = 0; k < cols_; ++k) {
    float& value = out[static_cast<std::size_t>(k)];
    if (act_ == Act::Float32) {
      std::memcpy(&value, group + (k * step + lane) * 4, 4);
      continue;
    }
    const std::byte* record = group + k / kBlockCols * kInt8Record;
    const Index j = k % kBlockCols;
    std::memcpy(&value, record + kInt8RecordScales + lane * 4, 4);
    value *= static_cast<float>(std::to_integer<std::int8_t>(record[lane * kBlockCols + j]));
  }
}

void quantize_rows(const float* x, Index rows, Index cols, Index stride, PackedRows& out,
                   Executor& executor) {
  HONE_TRACE_ZONE("quantize_rows", {"rows", rows}, {"cols", cols});
  check_rows("quantize_rows", rows, cols, stride);
  out.reshape(Act::Int8, rows, cols);
  for_row_groups(rows, cols, executor, [&](Index group, Index count) {
    std::byte* to = out.buffer_.data() + group * out.group_bytes_;
    for (Index r = 0; r < count; ++r) {
      HWY_DYNAMIC_DISPATCH(quantize_one_row)(x + (group * kRowGroup + r) * stride, cols, r, to);
    }
  });
}

void interleave_rows(const float* x, Index rows, Index cols, Index stride, PackedRows& out,
                     Executor& executor) {
  HONE_TRACE_ZONE("interleave_rows", {"rows", rows}, {"cols", cols});
  check_rows("interleave_rows", rows, cols, stride);
  out.reshape(Act::Float32, rows, cols);
  if (rows == 1) {
    if (cols > 0)
      std::memcpy(out.buffer_.data(), x, static_cast<std::size_t>(cols) * sizeof(float));
    return;
  }
  for_row_groups(rows, cols, executor, [&](Index group, Index count) {
    const float* from[kRowGroup];
    for (Index r = 0; r < kRowGroup; ++r) {
      from[r] = x + (group * kRowGroup + std::min(r, count - 1)) * stride;
    }
    HWY_DYNAMIC_DISPATCH(interleave_four_rows)
    (from, cols, reinterpret_cast<float*>(out.buffer_.data() + group * out.group_bytes_));
  });
}

}  // namespace hone::kernels
#endif
