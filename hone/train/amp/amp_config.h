// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/config/config_table.h"

namespace hone::amp {

struct AmpOptions;

// The number of consecutive skipped steps after which a run ends. Halving a loss scale of 65536
// this often gives 2^-9, where no gradient of a sane model overflows.
inline constexpr Index kMaxSkippedSteps = 25;

// [amp]: what forward passes multiply in, and the loss scale of fp16.
struct AmpConfig {
  std::string precision = "fp32";  // bf16, fp16, auto
  double init_scale = 65536;
  bool dynamic = true;
  Index growth_interval = 2000, hysteresis = 1;
};

void add_entries(ConfigEntries& entries, AmpConfig& amp);
// Error{InvalidArgument} names the key.
void check_config(const AmpConfig& amp);
// The options of a configuration whose precision is no longer auto. Only fp16 gets a GradScaler.
AmpOptions amp_options(const AmpConfig& amp);

}  // namespace hone::amp
