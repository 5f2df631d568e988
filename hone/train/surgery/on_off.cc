// SPDX-License-Identifier: Apache-2.0
#include "hone/train/surgery/on_off.h"

#include <utility>
#include <vector>

namespace hone::nn {

RatioInterval speedup_of_changes(const std::function<void()>& run, const ModelChanges& changes,
                                 Measurer& measurer, const MeasureOptions& options) {
  bool is_on = true;
  const auto contestant = [&](const std::string& name, bool on) {
    return Contestant{name, run, [&, on] {
                        if (std::exchange(is_on, on) == on) return;
                        changes.set(on);
                        run();  // untimed: what layers make of their weights is made again
                      }};
  };
  const std::vector<Contestant> contestants{contestant(changes.before, false),
                                            contestant(changes.after, true)};
  const Measurement measured = measurer.measure(contestants, options);
  if (!is_on) changes.set(true);
  return measurer.speedup(measured, 1, 0);
}

}  // namespace hone::nn
