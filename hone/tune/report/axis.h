// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace hone::tune {

// Maps data to drawing units along one direction and chooses ticks at 1, 2, 5 · 10^k.
class Axis {
 public:
  struct Range {
    double low = 0, high = 1;
  };
  // `data` is widened to whole ticks (Fit::Ticks) or kept (Fit::Data) on a linear axis; a
  // logarithmic axis keeps a small margin, and falls back to linear when data is not positive.
  // `pixels.low` is where data.low lies.
  enum class Fit { Ticks, Data };
  Axis(Range data, Range pixels, bool logarithmic, int wanted_ticks, Fit fit = Fit::Ticks);

  double place(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  bool is_logarithmic() const { return logarithmic_; }
  // Enough decimals to tell neighboring ticks apart.
  std::string format_tick(double value) const;

 private:
  void find_linear_ticks(int wanted, Fit fit);
  void find_logarithmic_ticks(int wanted);

  Range data_, pixels_;
  bool logarithmic_;
  std::vector<double> ticks_;
  int decimals_ = -1;
};

}  // namespace hone::tune
