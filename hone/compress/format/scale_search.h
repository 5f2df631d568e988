// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/compress/format/weight_format.h"

namespace hone::compress {

// How a scale is rounded to the type in which it is stored.
using RoundScale = float (*)(float scale);
float keep_scale(float scale);    // f32
float round_to_f16(float scale);  // to nearest
float round_to_bf16(float scale);
float raise_to_f16(float scale);  // to the next f16 that is not smaller in magnitude

// Factors by which the scale that represents the extremes is multiplied in a search.
struct SearchRange {
  float first = 1, last = 0.05f;
  int steps = 39;

  float factor_at(int step) const {
    const float share = steps > 1 ? static_cast<float>(step) / static_cast<float>(steps - 1) : 0;
    return first + (last - first) * share;
  }
};

struct FoundScale {
  float scale = 0;
  double error = 0;  // Σ importance (w - decoded)²
};
// Searches for the scale, and for the offset, that minimize Σ importance (w - decoded)². Each
// candidate fixes the codes, for which the best scale is a least-squares solution; it is a
// candidate, too. The first candidate is the scale that represents the extremes, so that the result
// is never worse than without a search. An importance that is empty counts as 1 for all.

// The better one of `scale`, which is not 0, and, if `refine`, the least-squares scale of its
// codes.
FoundScale refine_scale(std::span<const float> weights, std::span<const float> importance, int low,
                        int high, float scale, RoundScale round, bool refine);
// Searches codes between low and high with offset 0. If `is_signed`, also tries negative scales,
// for which `low` represents the largest weight.
float search_scale(std::span<const float> weights, std::span<const float> importance, int low,
                   int high, bool is_signed, RoundScale round, const SearchRange& range);
// Searches codes between 0 and `high`, and the offset.
Affine search_affine(std::span<const float> weights, std::span<const float> importance, int high,
                     bool offset_at_most_zero, RoundScale round, const SearchRange& range);
// Searches the scale of a table of levels.
float search_table(std::span<const float> weights, std::span<const float> importance,
                   const WeightFormat& format, RoundScale round, const SearchRange& range);

}  // namespace hone::compress
