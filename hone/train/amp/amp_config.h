// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/config/config_table.h"

namespace hone::amp {

struct AmpOptions;

// Number of consecutive skipped steps after which a run ends. This many halvings reduce a loss
// scale of 65536 to 2^-9, at which no gradient of a sane model overflows.
inline constexpr Index kMaxSkippedSteps = 25;

// [amp]: the precision of products in forward passes, and the loss scale of fp16.
struct AmpConfig {
  std::string precision = "fp32";  // bf16, fp16, auto
  double init_scale = 65536;
  bool dynamic = true;
  Index growth_interval = 2000, hysteresis = 1;
};

void add_entries(ConfigEntries& entries, AmpConfig& amp);
// Throws Error{InvalidArgument} that names the key if a value is out of range.
void check_config(const AmpConfig& amp);
// Returns the options of a configuration whose precision is not "auto". Only fp16 gets a
// GradScaler.
AmpOptions amp_options(const AmpConfig& amp);

}  // namespace hone::amp
