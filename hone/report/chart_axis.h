// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace hone::report {

// Maps data to drawing units along one direction and chooses ticks at 1, 2, 5 · 10^k.
class ChartAxis {
 public:
  struct Range {
    double low = 0, high = 1;
  };
  // A linear axis widens `data` to whole ticks (Fit::Ticks) or keeps it (Fit::Data). A logarithmic
  // axis adds a small margin, and becomes linear if the data is not positive. `pixels.low` is the
  // position of data.low.
  enum class Fit { Ticks, Data };
  ChartAxis(Range data, Range pixels, bool logarithmic, int target_ticks, Fit fit = Fit::Ticks);

  double place(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  bool is_logarithmic() const { return logarithmic_; }
  // Formats with enough decimals to distinguish neighboring ticks.
  std::string format_tick(double value) const;

 private:
  void find_linear_ticks(int count, Fit fit);
  void find_logarithmic_ticks(int count);

  Range data_, pixels_;
  bool logarithmic_;
  std::vector<double> ticks_;
  int decimals_ = -1;
};

}  // namespace hone::report
