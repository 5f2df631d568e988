// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/round_clip.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/check.h"

namespace hone::compress {
namespace {

constexpr int kClipSteps = 39;
constexpr float kF16Normal = 6.103515625e-5f, kF16Max = 65504.0f;

// Rounds half to even for |x| < 2^22. Calls nothing from libm, so that loops vectorize.
inline float round_even(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  return (x + kMagic) - kMagic;
}

struct Range {
  float low, high;  // includes 0
};

// The code of one group: value = scale * (code - zero).
struct GroupCode {
  float scale = 0;
  int zero = 0;
};

struct Grid {
  float low, high;  // code limits
  bool symmetric;
  Dtype scale_dtype;
};

Grid grid_of(const QuantSpec& spec) {
  const auto levels = static_cast<float>(1 << spec.bits);
  if (spec.symmetric) return {1 - levels / 2, levels / 2 - 1, true, spec.scale_dtype};
  return {0, levels - 1, false, spec.scale_dtype};
}

// The smallest f16 that is not below `value`.
float round_up_to_f16(float value) {
  const std::uint16_t nearest = float_to_f16(value);
  return f16_to_float(f16_to_float(nearest) < value ? static_cast<std::uint16_t>(nearest + 1)
                                                    : nearest);
}

float store_scale(float scale, Dtype dtype) {
  return dtype == Dtype::Float16 ? round_up_to_f16(scale) : scale;
}

Range range_of(std::span<const float> group) {
  Range range{0, 0};
  for (const float value : group) {
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  }
  return range;
}

GroupCode code_for(const Range& range, float clip, const Grid& grid) {
  GroupCode code;
  if (grid.symmetric) {
    const float peak = std::max(-range.low, range.high);
    code.scale = store_scale(clip * peak / grid.high, grid.scale_dtype);
    return code;
  }
  code.scale = store_scale(clip * (range.high - range.low) / grid.high, grid.scale_dtype);
  if (code.scale > 0) {
    code.zero = static_cast<int>(
        std::clamp(round_even(-clip * range.low / code.scale), grid.low, grid.high));
  }
  return code;
}

inline float quantize(float value, float inverse, float zero, const Grid& grid) {
  // Clamped before rounding as well, because round_even() needs a bounded argument.
  const float scaled = std::clamp(value * inverse, -1024.0f, 1024.0f);
  return std::clamp(round_even(scaled) + zero, grid.low, grid.high);
}

double squared_error(std::span<const float> group, const GroupCode& code, const Grid& grid) {
  const float inverse = code.scale > 0 ? 1 / code.scale : 0;
  const auto zero = static_cast<float>(code.zero);
  std::array<double, 8> sums{};
  for (std::size_t i = 0; i < group.size(); ++i) {
    const float error = group[i] - code.scale * (quantize(group[i], inverse, zero, grid) - zero);
    sums[i % 8] += static_cast<double>(error) * static_cast<double>(error);
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

GroupCode search_clip(std::span<const float> group, const Grid& grid, bool clip) {
  const Range range = range_of(group);
  GroupCode best = code_for(range, 1, grid);
  if (!clip || best.scale == 0) return best;
  double least = squared_error(group, best, grid);
  for (int step = 1; step < kClipSteps && least > 0; ++step) {
    const GroupCode trial = code_for(range, 1 - static_cast<float>(step) / 40, grid);
    const double error = squared_error(group, trial, grid);
    if (error < least) {
      least = error;
      best = trial;
    }
  }
  return best;
}

void pack_codes(std::span<const float> group, const GroupCode& code, const Grid& grid, int bits,
                std::byte* out) {
  const float inverse = code.scale > 0 ? 1 / code.scale : 0;
  const auto zero = static_cast<float>(code.zero);
  const unsigned mask = (1u << bits) - 1;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const int value = static_cast<int>(quantize(group[i], inverse, zero, grid));
    const unsigned field = static_cast<unsigned>(value) & mask;
    const std::size_t at = i * static_cast<std::size_t>(bits);
    out[at / 8] |= static_cast<std::byte>(field << (at % 8));
    if (at % 8 + static_cast<std::size_t>(bits) > 8) {
      out[at / 8 + 1] |= static_cast<std::byte>(field >> (8 - at % 8));
    }
  }
}

void store_group_scale(QuantMatrix& matrix, Index at, const GroupCode& code) {
  if (matrix.spec.scale_dtype == Dtype::Float16) {
    matrix.scales.as<std::uint16_t>()[at] = float_to_f16(code.scale);
  } else {
    matrix.scales.as<float>()[at] = code.scale;
  }
  if (!matrix.spec.symmetric)
    matrix.zeros.as<std::uint8_t>()[at] = static_cast<std::uint8_t>(code.zero);
}

void check_finite(std::span<const float> values, std::string_view name) {
  const auto bad =
      std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad != values.end()) {
    fail_corrupt(name, "finite weights", concat(*bad, " at element ", bad - values.begin()));
  }
}

// Whether every group's scales fit f16's normal range.
bool fits_f16(std::span<const float> values, Index rows, Index cols, const QuantSpec& spec) {
  const Grid grid = grid_of(spec);
  const Index group = spec.group_size(cols);
  for (Index row = 0; row < rows; ++row) {
    for (Index begin = 0; begin < cols; begin += group) {
      const auto part = values.subspan(static_cast<std::size_t>(row * cols + begin),
                                       static_cast<std::size_t>(std::min(group, cols - begin)));
      const Range range = range_of(part);
      const float width =
          grid.symmetric ? std::max(-range.low, range.high) : range.high - range.low;
      const float scale = width / grid.high;
      // The search may shrink a scale by a factor of up to 40.
      if (scale != 0 && (scale / 40 < kF16Normal || scale > kF16Max)) return false;
    }
  }
  return true;
}

}  // namespace

QuantMatrixView QuantMatrix::view() const {
  QuantMatrixView out;
  out.spec = spec;
  out.rows = rows;
  out.cols = cols;
  out.codes = codes.span();
  out.scales = scales.span();
  out.zeros = zeros.span();
  return out;
}

bool can_round(const QuantSpec& spec) {
  return spec.kind == CodeKind::Int && spec.span != ScaleSpan::Tensor &&
         (spec.scale_dtype == Dtype::Float32 || spec.scale_dtype == Dtype::Float16);
}

QuantMatrix round_clip(std::span<const float> values, Index rows, Index cols, const QuantSpec& spec,
                       const RoundOptions& options, Executor& executor, std::string_view name) {
  HONE_CHECK(can_round(spec), "round_clip", "integer codes per row or group with f32 or f16 scales",
             to_text(spec));
  HONE_CHECK(rows > 0 && cols > 0 && static_cast<Index>(values.size()) == rows * cols, "round_clip",
             concat(rows, " x ", cols, " values"), values.size());
  check_finite(values, name);
  QuantMatrix matrix;
  matrix.spec = spec;
  if (spec.scale_dtype == Dtype::Float16 && !fits_f16(values, rows, cols, spec)) {
    matrix.spec.scale_dtype = Dtype::Float32;
  }
  matrix.rows = rows;
  matrix.cols = cols;
  const Index groups = spec.groups_per_row(cols);
  const Index row_bytes = spec.code_bytes_per_row(cols);
  const Index group = spec.group_size(cols);
  const Index group_bytes = ceil_div(group * spec.bits, 8);
  matrix.codes = Buffer(rows * row_bytes);
  matrix.scales = Buffer(rows * groups * bytes_of(matrix.spec.scale_dtype));
  if (!spec.symmetric) matrix.zeros = Buffer(rows * groups);
  const Grid grid = grid_of(matrix.spec);
  executor.parallel_for(rows, 4, [&](Index begin, Index end, int) {
    for (Index at = begin * groups; at < end * groups; ++at) {
      const Index row = at / groups, first = at % groups * group;
      const auto part = values.subspan(static_cast<std::size_t>(row * cols + first),
                                       static_cast<std::size_t>(std::min(group, cols - first)));
      const GroupCode code = search_clip(part, grid, options.clip);
      store_group_scale(matrix, at, code);
      pack_codes(part, code, grid, spec.bits,
                 matrix.codes.data() + row * row_bytes + at % groups * group_bytes);
    }
  });
  return matrix;
}

double signal_to_noise_db(std::span<const float> values, const QuantMatrixView& matrix) {
  StoredMatrix stored;
  stored.layout = WeightLayout::Canonical;
  stored.rows = matrix.rows;
  stored.cols = matrix.cols;
  stored.quant = matrix;
  std::vector<float> row(static_cast<std::size_t>(matrix.cols));
  double signal = 0, noise = 0;
  for (Index r = 0; r < matrix.rows; ++r) {
    decode_row(stored, r, row);
    const float* original = values.data() + r * matrix.cols;
    for (Index c = 0; c < matrix.cols; ++c) {
      const double value = original[c],
                   error = value - static_cast<double>(row[static_cast<std::size_t>(c)]);
      signal += value * value;
      noise += error * error;
    }
  }
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

}  // namespace hone::compress
