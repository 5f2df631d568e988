// SPDX-License-Identifier: Apache-2.0
// The kernel and its reference, interleaved, 16 MiB each way.
#include <hone/core/machine/clock.h>
#include <hone/measure/measure.h>

#include <cstdio>
#include <vector>

#include "soft_threshold/soft_threshold.h"

int main() {
  const std::vector<float> x(std::size_t{1} << 22, 1.5f);
  std::vector<float> y(x.size());
  const example::SoftThresholdArgs args{
      .x = x.data(), .y = y.data(), .count = static_cast<hone::Index>(x.size()), .threshold = 1};
  const hone::Contestant contestants[] = {
      {.name = "soft_threshold", .run = [&] { example::soft_threshold(args); }},
      {.name = "soft_threshold_ref", .run = [&] { example::soft_threshold_ref(args); }}};
  const auto measurer = hone::measure::make_measurer();
  const hone::Measurement measurement = measurer->measure(contestants, {.max_seconds = 2});
  for (std::size_t i = 0; i < 2; ++i) {
    const hone::Spread time = measurer->spread(measurement.seconds[i]);
    std::printf("%-20s %.3f ms [%.3f, %.3f] (%td), %.1f GB/s\n", contestants[i].name.c_str(),
                time.median * 1e3, time.p10 * 1e3, time.p90 * 1e3,
                static_cast<std::ptrdiff_t>(time.n),
                8e-9 * static_cast<double>(x.size()) / time.median);
  }
  const hone::RatioInterval ratio = measurer->speedup(measurement, 0, 1);
  std::printf("ratio %.2f [%.2f, %.2f]%s\n", ratio.ratio, ratio.low, ratio.high,
              ratio.is_tie() ? ", a tie" : "");
  return 0;
}
