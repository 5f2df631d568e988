// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/format/scale_search.h"

#include <algorithm>
#include <cmath>

#include "hone/core/bf16.h"

namespace hone::compress {
namespace {

// Sums over the weights w of a block with codes l and importance h.
struct Sums {
  double h = 0, hl = 0, hll = 0, hw = 0, hwl = 0, hww = 0;

  void add(double importance, double weight, double level) {
    h += importance;
    hl += importance * level;
    hll += importance * level * level;
    hw += importance * weight;
    hwl += importance * weight * level;
    hww += importance * weight * weight;
  }
  // Σ h (w - scale l - offset)²
  double error(double scale, double offset) const {
    return hww + scale * scale * hll + offset * offset * h + 2 * scale * offset * hl -
           2 * scale * hwl - 2 * offset * hw;
  }
};

double importance_at(std::span<const float> importance, std::size_t i) {
  return importance.empty() ? 1.0 : static_cast<double>(importance[i]);
}

template <class Level>
Sums sum_up(std::span<const float> weights, std::span<const float> importance,
            const Level& level_of) {
  Sums sums;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double weight = weights[i];
    sums.add(importance_at(importance, i), weight, level_of(weights[i]));
  }
  return sums;
}

float nearest(float x, float low, float high) {
  // Clamped first, because codes of huge quotients are not representable.
  return std::nearbyint(std::clamp(x, low, high));
}

// The best of the candidates so far.
struct Best {
  Affine affine;
  double error = HUGE_VAL;

  void offer(float scale, float offset, const Sums& sums) {
    const double candidate = sums.error(scale, offset);
    if (candidate < error) *this = {{scale, offset}, candidate};
  }
};

float largest(std::span<const float> weights) {
  float most = 0;
  for (const float weight : weights) {
    if (std::abs(weight) > std::abs(most)) most = weight;
  }
  return most;
}

// Offers a scale with its codes, and the least-squares scale of these codes.
template <class Level>
void offer_scale(std::span<const float> weights, std::span<const float> importance, float scale,
                 RoundScale round, const Level& level_of, Best& best) {
  if (scale == 0 || !std::isfinite(scale)) return;
  const float inverse = 1 / scale;
  const Sums sums =
      sum_up(weights, importance, [&](float weight) { return level_of(weight * inverse); });
  best.offer(scale, 0, sums);
  if (sums.hll > 0) best.offer(round(static_cast<float>(sums.hwl / sums.hll)), 0, sums);
}

}  // namespace

float keep_scale(float scale) { return scale; }

float round_to_f16(float scale) { return f16_to_float(float_to_f16(scale)); }

float round_to_bf16(float scale) { return bf16_to_float(float_to_bf16(scale)); }

float raise_to_f16(float scale) {
  const std::uint16_t bits = float_to_f16(scale);
  const float near = f16_to_float(bits);
  return std::abs(near) < std::abs(scale) ? f16_to_float(static_cast<std::uint16_t>(bits + 1))
                                          : near;
}

FoundScale refine_scale(std::span<const float> weights, std::span<const float> importance, int low,
                        int high, float scale, RoundScale round, bool refine) {
  const auto least = static_cast<float>(low), most = static_cast<float>(high);
  const float inverse = 1 / scale;
  const Sums sums = sum_up(weights, importance, [&](float weight) {
    return static_cast<double>(nearest(weight * inverse, least, most));
  });
  Best best;
  best.offer(scale, 0, sums);
  if (refine && sums.hll > 0) best.offer(round(static_cast<float>(sums.hwl / sums.hll)), 0, sums);
  return {best.affine.scale, best.error};
}

float search_scale(std::span<const float> weights, std::span<const float> importance, int low,
                   int high, bool is_signed, RoundScale round, const SearchRange& range) {
  const auto least = static_cast<float>(low), most = static_cast<float>(high);
  const float peak = largest(weights);
  const float full = is_signed ? peak / least : std::abs(peak) / most;
  const auto level_of = [&](float x) { return static_cast<double>(nearest(x, least, most)); };
  Best best{.affine = {round(full), 0}};
  for (int step = 0; step < range.steps; ++step) {
    const float scale = round(range.factor_at(step) * full);
    offer_scale(weights, importance, scale, round, level_of, best);
    if (is_signed) offer_scale(weights, importance, -scale, round, level_of, best);
  }
  return best.affine.scale;
}

float search_table(std::span<const float> weights, std::span<const float> importance,
                   const WeightFormat& format, RoundScale round, const SearchRange& range) {
  const std::span<const float> levels = format.levels();
  const float peak = largest(weights);
  const float end = std::max(-levels.front(), levels.back());
  const float full = peak / (levels.front() == -end ? -end : end);
  const auto level_of = [&](float x) {
    return static_cast<double>(levels[format.encode({1, 0}, x)]);
  };
  Best best{.affine = {round(full), 0}};
  for (int step = 0; step < range.steps; ++step) {
    const float scale = round(range.factor_at(step) * full);
    offer_scale(weights, importance, scale, round, level_of, best);
    offer_scale(weights, importance, -scale, round, level_of, best);
  }
  return best.affine.scale;
}

Affine search_affine(std::span<const float> weights, std::span<const float> importance, int high,
                     bool offset_at_most_zero, RoundScale round, const SearchRange& range) {
  auto [low, top] = std::ranges::minmax(weights);
  if (offset_at_most_zero) low = std::min(low, 0.0f);
  if (top <= low) top = low;  // one value, which the offset represents
  const auto most = static_cast<float>(high);
  Best best{.affine = {round((top - low) / most), round(low)}};
  const auto offer = [&](float scale, float offset) {
    const float inverse = scale > 0 ? 1 / scale : 0;
    const Sums sums = sum_up(weights, importance, [&](float weight) {
      return static_cast<double>(nearest((weight - offset) * inverse, 0, most));
    });
    best.offer(scale, offset, sums);
    const double determinant = sums.h * sums.hll - sums.hl * sums.hl;
    if (determinant <= 0) return;
    double fitted = (sums.h * sums.hwl - sums.hl * sums.hw) / determinant;
    double shift = (sums.hll * sums.hw - sums.hl * sums.hwl) / determinant;
    if (offset_at_most_zero && shift > 0) {
      shift = 0;
      fitted = sums.hll > 0 ? sums.hwl / sums.hll : 0;
    }
    best.offer(round(static_cast<float>(fitted)), round(static_cast<float>(shift)), sums);
  };
  const float middle = offset_at_most_zero ? 0 : (low + top) / 2;
  for (int step = 0; step < range.steps; ++step) {
    const float factor = range.factor_at(step);
    const float from = middle + factor * (low - middle), to = middle + factor * (top - middle);
    offer(round((to - from) / most), round(from));
  }
  return best.affine;
}

}  // namespace hone::compress
