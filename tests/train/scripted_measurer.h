// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hone/core/machine/measurer.h"

namespace hone::test {

// Says that each contestant takes the seconds of its name, 1 if it has none, within `noise` on both
// sides.
class ScriptedMeasurer final : public Measurer {
 public:
  std::map<std::string, double> seconds;
  double noise = 0;
  std::vector<std::string> timed;  // the contestants of the last call

  Measurement measure(std::span<const Contestant> contestants, const MeasureOptions&) override {
    Measurement out;
    for (const Contestant& contestant : contestants) {
      if (contestant.prepare) contestant.prepare();
      contestant.run();
      out.names.push_back(contestant.name);
      out.seconds.push_back({seconds_of(contestant.name)});
    }
    timed = out.names;
    return out;
  }
  Spread spread(std::span<const double> samples) const override {
    return {.median = samples[0], .p10 = samples[0], .p90 = samples[0], .n = 1};
  }
  RatioInterval speedup(const Measurement& measurement, Index impl, Index against) const override {
    const auto at = [&](Index i) {
      return seconds_of(measurement.names[static_cast<std::size_t>(i)]);
    };
    const double ratio = at(against) / at(impl);
    return {ratio, ratio * (1 - noise), ratio * (1 + noise)};
  }

 private:
  double seconds_of(const std::string& name) const {
    const auto found = seconds.find(name);
    return found == seconds.end() ? 1.0 : found->second;
  }
};

}  // namespace hone::test
