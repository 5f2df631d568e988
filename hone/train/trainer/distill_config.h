// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/config/config_table.h"

namespace hone::trainer {

// [distill]: a teacher that the model learns from.
struct DistillConfig {
  std::string teacher;  // empty: none
  double temperature = 3, alpha = 0.7;
  bool control = true;
};
// `kind` says what a teacher may be.
void add_entries(ConfigEntries& entries, DistillConfig& distill, const std::string& kind);
void check_config(const DistillConfig& distill);

}  // namespace hone::trainer
