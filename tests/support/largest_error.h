// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace hone::test {

// The largest error of computed values.
struct LargestError {
  double error = 0;    // largest |got − wanted|; NaN if one of them is, so that no bound holds
  double wanted = 0;   // largest |wanted|
  std::size_t at = 0;  // the call of add() with the largest error, or the last with NaN
  std::size_t adds = 0;

  void add(double got, double value) {
    const double one = std::abs(got - value);
    if (std::isnan(one) || one > error) error = one, at = adds;
    wanted = std::max(wanted, std::abs(value));
    ++adds;
  }
  double relative() const { return error / wanted; }
};

}  // namespace hone::test
