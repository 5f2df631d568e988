// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "hone/compress/format/scale_search.h"
#include "hone/compress/format/weight_format.h"
#include "hone/core/bf16.h"
#include "hone/core/check.h"

namespace hone::compress {
namespace {

// Integers ascending from the least code; logarithmic codes as QuantMatrixView decodes them.
std::vector<float> levels_of(const QuantSpec& spec) {
  const int half = 1 << (spec.bits - 1);
  std::vector<float> levels;
  for (int code = spec.symmetric ? 1 - half : 0; code < (spec.symmetric ? half : 2 * half); ++code)
    levels.push_back(level_of(spec, code));
  return levels;
}

class CanonicalFormat final : public WeightFormat {
 public:
  explicit CanonicalFormat(const QuantSpec& spec)
      : WeightFormat(to_text(spec), levels_of(spec),
                     static_cast<std::uint8_t>(spec.symmetric ? (1 << (spec.bits - 1)) - 1 : 0)),
        spec_(spec) {}

  Index block(Index cols) const override { return spec_.group_size(cols); }
  bool takes(Index cols) const override {
    return spec_.span != ScaleSpan::Group || spec_.group <= cols;
  }
  bool spans_rows() const override { return spec_.span == ScaleSpan::Tensor; }
  double bits_per_weight(Index rows, Index cols) const override {
    return spec_.bits_per_weight(rows, cols);
  }
  void fit(std::span<const float> weights, std::span<const float> importance,
           const FitOptions& options, BlockScales& scales) const override;
  bool holds(std::span<const float> weights) const override;
  std::shared_ptr<const WeightFormat> widened() const override {
    if (spec_.scale_dtype == Dtype::Float32) return nullptr;
    QuantSpec wide = spec_;
    wide.scale_dtype = Dtype::Float32;
    return make_canonical_format(wide);
  }
  EncodedMatrix allocate(Index rows, Index cols) const override;
  void store(EncodedMatrix& matrix, Index row, Index at, const BlockScales& scales,
             std::span<const std::uint8_t> codes) const override;

 private:
  void store_scale(EncodedMatrix& matrix, Index at, const BlockScales& scales) const;
  void fit_asymmetric(std::span<const float> weights, std::span<const float> importance,
                      const FitOptions& options, BlockScales& scales) const;
  RoundScale round() const {
    if (spec_.scale_dtype == Dtype::Float32) return keep_scale;
    return spec_.scale_dtype == Dtype::Float16 ? raise_to_f16 : round_to_bf16;
  }

  QuantSpec spec_;
};

void CanonicalFormat::fit(std::span<const float> weights, std::span<const float> importance,
                          const FitOptions& options, BlockScales& scales) const {
  SearchRange range;
  if (!options.clip) range.steps = 0;
  if (spec_.kind == CodeKind::Log) {
    scales.d = search_table(weights, importance, *this, round(), range);
  } else if (spec_.symmetric) {
    const int high = (1 << (spec_.bits - 1)) - 1;
    scales.d = search_scale(weights, importance, -high, high, false, round(), range);
  } else {
    fit_asymmetric(weights, importance, options, scales);
  }
  scales.affine[0] = {scales.d, -scales.d * static_cast<float>(scales.zero)};
}

// The zero point is the code of 0, so that the range contains 0.
void CanonicalFormat::fit_asymmetric(std::span<const float> weights,
                                     std::span<const float> importance, const FitOptions& options,
                                     BlockScales& scales) const {
  const auto [least, most] = std::ranges::minmax(weights);
  const float low = std::min(least, 0.0f), high = std::max(most, 0.0f);
  const int top = (1 << spec_.bits) - 1;
  const SearchRange range;
  double best = HUGE_VAL;
  for (int step = 0; step < (options.clip ? range.steps : 1); ++step) {
    const float factor = range.factor_at(step);
    const float scale = round()(factor * (high - low) / static_cast<float>(top));
    if (scale == 0) return;  // all weights are 0
    const float zero =
        std::clamp(std::nearbyint(-factor * low / scale), 0.0f, static_cast<float>(top));
    const int from = -static_cast<int>(zero);
    const FoundScale found =
        refine_scale(weights, importance, from, top + from, scale, round(), options.clip);
    if (!(found.error < best)) continue;
    best = found.error;
    scales.d = found.scale;
    scales.zero = -from;
  }
}

// The search makes scales smaller, down to the last factor of its range.
bool CanonicalFormat::holds(std::span<const float> weights) const {
  if (spec_.scale_dtype != Dtype::Float16) return true;
  constexpr float kLeast = 6.103515625e-5f, kMost = 65504;
  const auto [least, most] = std::ranges::minmax(weights);
  const float peak = std::max(-least, most);
  const float width = spec_.symmetric ? peak : std::max(most, 0.0f) - std::min(least, 0.0f);
  const float scale =
      width / (spec_.symmetric ? levels().back() : static_cast<float>((1 << spec_.bits) - 1));
  return scale == 0 || (scale * SearchRange().last >= kLeast && scale <= kMost);
}

EncodedMatrix CanonicalFormat::allocate(Index rows, Index cols) const {
  EncodedMatrix out;
  const Index scales = spec_.span == ScaleSpan::Tensor ? 1 : rows * spec_.groups_per_row(cols);
  out.codes = Buffer(rows * spec_.code_bytes_per_row(cols));
  out.scales = Buffer(scales * bytes_of(spec_.scale_dtype));
  if (!spec_.symmetric) out.zeros = Buffer(scales);
  out.stored.layout = WeightLayout::Canonical;
  out.stored.rows = rows;
  out.stored.cols = cols;
  out.stored.quant = {spec_, rows, cols, out.codes.span(), out.scales.span(), out.zeros.span()};
  return out;
}

void CanonicalFormat::store_scale(EncodedMatrix& matrix, Index at,
                                  const BlockScales& scales) const {
  if (spec_.scale_dtype == Dtype::Float32) {
    matrix.scales.as<float>()[at] = scales.d;
  } else {
    matrix.scales.as<std::uint16_t>()[at] =
        spec_.scale_dtype == Dtype::Float16 ? float_to_f16(scales.d) : float_to_bf16(scales.d);
  }
  if (!spec_.symmetric)
    matrix.zeros.as<std::uint8_t>()[at] = static_cast<std::uint8_t>(scales.zero);
}

void CanonicalFormat::store(EncodedMatrix& matrix, Index row, Index at, const BlockScales& scales,
                            std::span<const std::uint8_t> codes) const {
  const Index cols = matrix.stored.cols, group = spec_.group_size(cols);
  if (!spans_rows() || row == 0) {  // all rows share one scale
    store_scale(matrix, spans_rows() ? 0 : row * spec_.groups_per_row(cols) + at, scales);
  }
  const int first = spec_.symmetric ? 1 - (1 << (spec_.bits - 1)) : 0;
  const unsigned mask = (1u << spec_.bits) - 1;
  std::vector<std::uint8_t> raw(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i)
    raw[i] = static_cast<std::uint8_t>(static_cast<unsigned>(codes[i] + first) & mask);
  const Index bytes = ceil_div(group * spec_.bits, 8);
  const Index offset = row * spec_.code_bytes_per_row(cols) + at * bytes;
  pack_codes(raw, spec_.bits,
             matrix.codes.span().subspan(static_cast<std::size_t>(offset),
                                         static_cast<std::size_t>(bytes)));
}

}  // namespace

std::shared_ptr<const WeightFormat> make_canonical_format(const QuantSpec& spec) {
  return std::make_shared<CanonicalFormat>(spec);
}

}  // namespace hone::compress
