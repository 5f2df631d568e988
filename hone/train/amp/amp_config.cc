// SPDX-License-Identifier: Apache-2.0
#include "hone/train/amp/amp_config.h"

#include <array>
#include <limits>

#include "hone/core/check.h"
#include "hone/train/amp/mixed_precision.h"

namespace hone::amp {

void add_entries(ConfigEntries& entries, AmpConfig& amp) {
  const std::string unscaled =
      amp.precision == "fp16" ? std::string() : concat("amp.precision = ", amp.precision);
  const EntryAdder add{entries, unscaled};
  entries.push_back({"amp.precision", &amp.precision,
                     "type of the products in forward and backward passes; weights, gradients and "
                     "state stay in fp32. fp32; bf16; fp16, with a loss scale; auto: bf16 if a few "
                     "measured steps are faster with it, else fp32"});
  add("amp.init_scale", &amp.init_scale, "loss scale of fp16 in the first step");
  add("amp.dynamic", &amp.dynamic,
      "fp16: halve the loss scale after a step whose gradients overflow; false: keep it constant. "
      "Such a step is skipped either way");
  add("amp.growth_interval", &amp.growth_interval,
      "fp16: steps without overflow after which the loss scale is doubled");
  add("amp.hysteresis", &amp.hysteresis,
      "fp16: steps with overflow before the loss scale is halved");
}

void check_config(const AmpConfig& amp) {
  check_choice("amp.precision", amp.precision,
               std::array<std::string_view, 4>{"fp32", "bf16", "fp16", "auto"});
  check_range("amp.init_scale", amp.init_scale, 1e-30, 1e30);
  check_range("amp.growth_interval", amp.growth_interval, 1, Index{1} << 40);
  check_range("amp.hysteresis", amp.hysteresis, 1, Index{1} << 40);
}

AmpOptions amp_options(const AmpConfig& amp) {
  AmpOptions options;
  if (amp.precision == "bf16") options.precision = at::kBFloat16;
  if (amp.precision == "fp16") {
    options.precision = at::kHalf;
    options.scaler = amp::GradScalerOptions{.init_scale = amp.init_scale,
                                            .growth_interval = amp.growth_interval,
                                            .dynamic = amp.dynamic,
                                            .hysteresis = amp.hysteresis};
  }
  return options;
}

}  // namespace hone::amp
