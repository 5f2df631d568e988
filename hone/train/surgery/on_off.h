// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "hone/core/machine/measurer.h"

namespace hone::nn {

// Some changes to a model: set(false) undoes them, and set(true) makes them again. The names of the
// contestants are those of the model without and with them.
struct ModelChanges {
  std::function<void(bool on)> set;
  std::string before = "before", after = "after";
};

// How much faster `run` is with the changes than without. They are in place before and afterwards.
RatioInterval speedup_of_changes(const std::function<void()>& run, const ModelChanges& changes,
                                 Measurer& measurer, const MeasureOptions& options);

}  // namespace hone::nn
