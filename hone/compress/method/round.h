// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "hone/compress/format/weight_format.h"
#include "hone/core/thread/executor.h"

namespace hone::compress {

// A matrix [rows, cols] to quantize; row-major.
struct WeightMatrix {
  std::span<const float> values;
  Index rows = 0, cols = 0;
  std::string_view name;  // for errors

  std::span<const float> row(Index at) const {
    return values.subspan(static_cast<std::size_t>(at * cols), static_cast<std::size_t>(cols));
  }
};

// Throws Error{CorruptFile} that names the matrix for a value that is not finite.
void check_finite(const WeightMatrix& matrix);
// The format, or its fallback if it does not take rows of so many columns and has one.
std::shared_ptr<const WeightFormat> format_for_columns(std::shared_ptr<const WeightFormat> format,
                                                       Index cols);
double bits_of(const StoredMatrix& matrix);  // per weight, as stored
// Whether the matrix would have fewer bits in the format.
bool would_shrink(const StoredMatrix& matrix, const WeightFormat& format);
// The format that the matrix would get for this name; null if it cannot or would not shrink.
std::shared_ptr<const WeightFormat> shrinking_format(const StoredMatrix& matrix,
                                                     std::string_view name);
// The bytes of the matrix in the format.
Index bytes_in(const WeightFormat& format, const StoredMatrix& matrix);
// All values [rows, cols].
std::vector<float> values_of(const StoredMatrix& matrix);

// The format in which the matrix is stored: `format`, or its widened() form if its scales are out
// of range. Throws Error{InvalidArgument} if the format does not take so many columns, and
// Error{CorruptFile} that names the matrix for a value that is not finite or out of range.
std::shared_ptr<const WeightFormat> format_for(std::shared_ptr<const WeightFormat> format,
                                               const WeightMatrix& matrix);

// The scales of all blocks of the matrix [rows, blocks per row], or one for a format that
// spans_rows(). The importance of columns [cols] may be empty, which counts as 1.
std::vector<BlockScales> fit_matrix(const WeightFormat& format, const WeightMatrix& matrix,
                                    std::span<const float> importance, const FitOptions& options,
                                    Executor& executor);
// How the code in a column of a row is decoded.
const Affine& affine_at(const WeightFormat& format, std::span<const BlockScales> scales, Index cols,
                        Index row, Index col);

// Stores one row with its codes [cols]; different rows may be stored by different threads.
void store_row(const WeightFormat& format, std::span<const BlockScales> scales, Index row,
               std::span<const std::uint8_t> codes, EncodedMatrix& out);

// The entropy of the codes, -Σ p log2 p in bits per weight, which an ideal code would need.
double code_entropy(const WeightFormat& format, const WeightMatrix& matrix,
                    std::span<const BlockScales> scales, const StoredMatrix& stored);

// Rounds each weight to the nearest level with the scales of fit_matrix(). The result does not
// depend on the number of threads.
EncodedMatrix round_matrix(const WeightFormat& format, const WeightMatrix& matrix,
                           std::span<const BlockScales> scales, Executor& executor);

// The matrix in the type of `like`, which has other values and may have other sizes: f32, f16 and
// bf16 are rounded, codes get new scales, and f16 stands for codes that do not take so many
// columns. Throws like format_for().
EncodedMatrix store_like(const StoredMatrix& like, const WeightMatrix& matrix, Executor& executor);

// 10 log10(Σ w² / Σ (w - decoded)²) in dB; infinity if nothing was lost.
double signal_to_noise_db(const WeightMatrix& matrix, const StoredMatrix& stored);

}  // namespace hone::compress
