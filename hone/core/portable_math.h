// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "hone/core/philox.h"

// Functions whose results have the same bits on every machine: they consist of operations that IEEE
// 754 rounds correctly, in a fixed order. (The last bit of the C library's sin, exp and log depends
// on its version and on the processor.) Errors are a few units in the last place.
namespace hone {

// sin(2 pi t); exact at multiples of a quarter turn.
inline double sin_turns(double t) {
  constexpr double kTau = 6.283185307179586476925;
  double r = t - std::floor(t + 0.5);  // at most half a turn, then a quarter
  if (r > 0.25) r = 0.5 - r;
  if (r < -0.25) r = -0.5 - r;
  // Uses the sine series below an eighth of a turn, and above it the cosine series of the angle to
  // the quarter turn. Each factor is the ratio of a term to the previous one.
  constexpr double kSine[] = {1.0 / 342, 1.0 / 272, 1.0 / 210, 1.0 / 156, 1.0 / 110,
                              1.0 / 72,  1.0 / 42,  1.0 / 20,  1.0 / 6};
  constexpr double kCosine[] = {1.0 / 306, 1.0 / 240, 1.0 / 182, 1.0 / 132, 1.0 / 90,
                                1.0 / 56,  1.0 / 30,  1.0 / 12,  1.0 / 2};
  const bool is_low = std::abs(r) <= 0.125;
  const double x = kTau * (is_low ? r : 0.25 - std::abs(r));
  double sum = 1;
  for (const double factor : is_low ? kSine : kCosine) sum = 1 - sum * (x * x * factor);
  if (is_low) return x * sum;
  return r < 0 ? -sum : sum;
}
inline double cos_turns(double t) { return sin_turns(t + 0.25); }

// e^x for |x| < 700.
inline double portable_exp(double x) {
  constexpr double kLog2High = 0x1.62e42feep-1, kLog2Low = 0x1.a39ef35793c76p-33;
  const double power = std::floor(x / (kLog2High + kLog2Low) + 0.5);
  const double r = (x - power * kLog2High) - power * kLog2Low;
  double sum = 1;
  for (int k = 14; k >= 1; --k) sum = 1 + sum * r / k;
  return std::ldexp(sum, static_cast<int>(power));
}

// The natural logarithm of a positive normal number.
inline double portable_log(double x) {
  constexpr double kLog2 = 0.6931471805599453094172, kRootHalf = 0.7071067811865475244;
  int power = 0;
  double m = std::frexp(x, &power);  // [0.5, 1)
  if (m < kRootHalf) {
    m *= 2;
    --power;
  }
  const double s = (m - 1) / (m + 1);  // log m = 2 atanh s
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * (s * s) + 1.0 / k;
  return power * kLog2 + 2 * s * sum;
}

// A draw from the normal distribution of mean 0 and variance 1 (Box and Muller, 1958).
inline double draw_normal(PhiloxStream& random) {
  const double radius = std::sqrt(-2 * portable_log(random.uniform_double()));
  return radius * cos_turns(random.uniform_double());
}

}  // namespace hone
