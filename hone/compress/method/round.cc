// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/round.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/check.h"
#include "hone/core/format/matrix_type.h"

namespace hone::compress {
namespace {

// Calls visit(weights, first column) for the blocks of a row.
template <class Visit>
void for_blocks(const WeightFormat& format, std::span<const float> row, const Visit& visit) {
  const auto block = static_cast<std::size_t>(format.block(std::ssize(row)));
  for (std::size_t begin = 0; begin < row.size(); begin += block)
    visit(row.subspan(begin, std::min(block, row.size() - begin)), begin);
}

bool holds(const WeightFormat& format, const WeightMatrix& matrix) {
  if (format.spans_rows()) return format.holds(matrix.values);
  for (Index row = 0; row < matrix.rows; ++row) {
    bool all = true;
    for_blocks(format, matrix.row(row), [&](std::span<const float> block, std::size_t) {
      all = all && format.holds(block);
    });
    if (!all) return false;
  }
  return true;
}

Index blocks_per_row(const WeightFormat& format, Index cols) {
  return ceil_div(cols, format.block(cols));
}

// The importance of every element of the matrix.
std::vector<float> repeat(std::span<const float> importance, Index rows) {
  std::vector<float> all;
  for (Index row = 0; row < rows && !importance.empty(); ++row)
    all.insert(all.end(), importance.begin(), importance.end());
  return all;
}

// The scales of the block that has column `col` of a row.
const BlockScales& scales_at(const WeightFormat& format, std::span<const BlockScales> scales,
                             Index cols, Index row, Index col) {
  if (format.spans_rows()) return scales.front();
  const Index at = row * blocks_per_row(format, cols) + col / format.block(cols);
  return scales[static_cast<std::size_t>(at)];
}

}  // namespace

void check_finite(const WeightMatrix& matrix) {
  const auto bad =
      std::ranges::find_if_not(matrix.values, [](float x) { return std::isfinite(x); });
  if (bad != matrix.values.end()) {
    fail_corrupt(matrix.name, "finite weights",
                 concat(*bad, " at element ", bad - matrix.values.begin()));
  }
}

std::shared_ptr<const WeightFormat> format_for_columns(std::shared_ptr<const WeightFormat> format,
                                                       Index cols) {
  if (format->takes(cols) || format->fallback() == nullptr) return format;
  return format->fallback();
}

double bits_of(const StoredMatrix& matrix) {
  return 8 * static_cast<double>(matrix.stored_bytes()) /
         static_cast<double>(matrix.rows * matrix.cols);
}

bool would_shrink(const StoredMatrix& matrix, const WeightFormat& format) {
  return format.bits_per_weight(matrix.rows, matrix.cols) < bits_of(matrix);
}

std::shared_ptr<const WeightFormat> shrinking_format(const StoredMatrix& matrix,
                                                     std::string_view name) {
  auto format = format_for_columns(parse_weight_format(name), matrix.cols);
  return format->takes(matrix.cols) && would_shrink(matrix, *format) ? format : nullptr;
}

Index bytes_in(const WeightFormat& format, const StoredMatrix& matrix) {
  return static_cast<Index>(std::ceil(format.bits_per_weight(matrix.rows, matrix.cols) / 8 *
                                      static_cast<double>(matrix.rows) *
                                      static_cast<double>(matrix.cols)));
}

std::vector<float> values_of(const StoredMatrix& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
  decode(matrix, values);
  return values;
}

std::shared_ptr<const WeightFormat> format_for(std::shared_ptr<const WeightFormat> format,
                                               const WeightMatrix& matrix) {
  HONE_CHECK(
      matrix.rows > 0 && matrix.cols > 0 && std::ssize(matrix.values) == matrix.rows * matrix.cols,
      "quantize", concat(matrix.rows, " x ", matrix.cols, " values"), matrix.values.size());
  HONE_CHECK(format->takes(matrix.cols), "quantize",
             concat("columns that ", format->name(), " can store"), matrix.cols);
  check_finite(matrix);
  if (holds(*format, matrix)) return format;
  auto wide = format->widened();
  if (wide == nullptr || !holds(*wide, matrix))
    fail_corrupt(matrix.name, concat("weights that ", format->name(), " can represent"),
                 "larger ones");
  return wide;
}

// Clips weights at a percentile of their sizes.
std::vector<float> clipped(std::span<const float> weights, double percentile) {
  std::vector<float> sizes(weights.size()), out(weights.begin(), weights.end());
  std::ranges::transform(weights, sizes.begin(), [](float x) { return std::abs(x); });
  const double last = static_cast<double>(sizes.size() - 1);
  const auto rank = static_cast<std::ptrdiff_t>(std::floor(percentile / 100 * last));
  std::ranges::nth_element(sizes, sizes.begin() + rank);
  const float limit = sizes[static_cast<std::size_t>(rank)];
  for (float& value : out) value = std::clamp(value, -limit, limit);
  return out;
}

std::vector<BlockScales> fit_matrix(const WeightFormat& format, const WeightMatrix& matrix,
                                    std::span<const float> importance, const FitOptions& options,
                                    Executor& executor) {
  const double percentile = options.percentile;
  if (format.spans_rows()) {
    std::vector<BlockScales> one(1);
    const std::vector<float> all = repeat(importance, matrix.rows);
    if (percentile > 0) {
      format.fit(clipped(matrix.values, percentile), all, {.clip = false}, one.front());
    } else {
      format.fit(matrix.values, all, options, one.front());
    }
    return one;
  }
  const Index blocks = blocks_per_row(format, matrix.cols);
  std::vector<BlockScales> scales(static_cast<std::size_t>(matrix.rows * blocks));
  executor.parallel_for(matrix.rows, 4, [&](Index begin, Index end, int) {
    std::vector<float> inside;
    for (Index row = begin; row < end; ++row) {
      auto to = scales.begin() + row * blocks;
      if (percentile > 0) inside = clipped(matrix.row(row), percentile);
      const std::span<const float> weights = percentile > 0 ? inside : matrix.row(row);
      const FitOptions own = percentile > 0 ? FitOptions{.clip = false} : options;
      for_blocks(format, weights, [&](std::span<const float> block, std::size_t first) {
        const auto part = importance.empty() ? importance : importance.subspan(first, block.size());
        format.fit(block, part, own, *to++);
      });
    }
  });
  return scales;
}

const Affine& affine_at(const WeightFormat& format, std::span<const BlockScales> scales, Index cols,
                        Index row, Index col) {
  const Index at = col % format.block(cols) / format.sub_block(cols);
  return scales_at(format, scales, cols, row, col).affine[static_cast<std::size_t>(at)];
}

void store_row(const WeightFormat& format, std::span<const BlockScales> scales, Index row,
               std::span<const std::uint8_t> codes, EncodedMatrix& out) {
  const auto cols = static_cast<Index>(codes.size()), block = format.block(cols);
  for (Index first = 0; first < cols; first += block) {
    const auto count = static_cast<std::size_t>(std::min(block, cols - first));
    format.store(out, row, first / block, scales_at(format, scales, cols, row, first),
                 codes.subspan(static_cast<std::size_t>(first), count));
  }
}

EncodedMatrix round_matrix(const WeightFormat& format, const WeightMatrix& matrix,
                           std::span<const BlockScales> scales, Executor& executor) {
  EncodedMatrix out = format.allocate(matrix.rows, matrix.cols);
  executor.parallel_for(matrix.rows, 4, [&](Index begin, Index end, int) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(matrix.cols));
    for (Index row = begin; row < end; ++row) {
      const std::span<const float> weights = matrix.row(row);
      for (Index col = 0; col < matrix.cols; ++col) {
        const Affine& affine = affine_at(format, scales, matrix.cols, row, col);
        const auto at = static_cast<std::size_t>(col);
        codes[at] = format.encode(affine, weights[at]);
      }
      store_row(format, scales, row, codes, out);
    }
  });
  return out;
}

double code_entropy(const WeightFormat& format, const WeightMatrix& matrix,
                    std::span<const BlockScales> scales, const StoredMatrix& stored) {
  std::vector<Index> counts(format.levels().size());
  std::vector<float> decoded(static_cast<std::size_t>(matrix.cols));
  for (Index row = 0; row < matrix.rows; ++row) {
    decode_row(stored, row, decoded);
    for (Index col = 0; col < matrix.cols; ++col) {
      const Affine& affine = affine_at(format, scales, matrix.cols, row, col);
      ++counts[format.encode(affine, decoded[static_cast<std::size_t>(col)])];
    }
  }
  const auto all = static_cast<double>(matrix.rows * matrix.cols);
  double entropy = 0;
  for (const Index count : counts) {
    const double share = static_cast<double>(count) / all;
    if (count > 0) entropy -= share * std::log2(share);
  }
  return entropy;
}

EncodedMatrix store_like(const StoredMatrix& like, const WeightMatrix& matrix, Executor& executor) {
  if (like.layout != WeightLayout::Dense) {
    const auto taken = format_for_columns(parse_weight_format(type_text(like)), matrix.cols);
    if (!taken->takes(matrix.cols)) {
      StoredMatrix half;
      half.dtype = Dtype::Float16;
      return store_like(half, matrix, executor);
    }
    const auto format = format_for(taken, matrix);
    const auto scales = fit_matrix(*format, matrix, {}, {}, executor);
    EncodedMatrix out = round_matrix(*format, matrix, scales, executor);
    out.stored.act_int8 = like.act_int8;
    return out;
  }
  check_finite(matrix);
  EncodedMatrix out;
  out.stored.rows = matrix.rows;
  out.stored.cols = matrix.cols;
  out.stored.dtype = like.dtype;
  out.stored.act_int8 = like.act_int8;
  const Index size = bytes_of(like.dtype);
  out.codes = Buffer(std::ssize(matrix.values) * size);
  out.stored.bytes = out.codes.span();
  for (std::size_t i = 0; i < matrix.values.size(); ++i) {
    const float value = matrix.values[i];
    switch (like.dtype) {
      case Dtype::Float16:
        out.codes.as<std::uint16_t>()[i] = float_to_f16(value);
        break;
      case Dtype::BFloat16:
        out.codes.as<std::uint16_t>()[i] = float_to_bf16(value);
        break;
      default:
        out.codes.as<float>()[i] = value;
    }
    if (like.dtype == Dtype::Float16 && std::abs(value) >= 65520)
      fail_corrupt(matrix.name, "weights that f16 can represent", concat(value));
  }
  return out;
}

double signal_to_noise_db(const WeightMatrix& matrix, const StoredMatrix& stored) {
  std::vector<float> decoded(static_cast<std::size_t>(matrix.cols));
  double signal = 0, noise = 0;
  for (Index row = 0; row < matrix.rows; ++row) {
    decode_row(stored, row, decoded);
    const std::span<const float> weights = matrix.row(row);
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      const double value = weights[i], error = value - static_cast<double>(decoded[i]);
      signal += value * value;
      noise += error * error;
    }
  }
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

}  // namespace hone::compress
