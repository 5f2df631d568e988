// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <limits>

#include "hone/core/index.h"
#include "hone/kernels/cuda/host_device.h"

// Helpers for the groups and scalars of all rules, on the host and on a device.
namespace hone::kernels {

// The slots that a group's rule uses besides parameter and gradient.
struct RuleSlots {
  bool momentum = false, second_moment = false, extra = false;

  void add(const RuleSlots& other) {
    momentum = momentum || other.momentum;
    second_moment = second_moment || other.second_moment;
    extra = extra || other.extra;
  }
  friend bool operator==(const RuleSlots&, const RuleSlots&) = default;
};

inline constexpr float kEndless = std::numeric_limits<float>::infinity();

// Returns 1 - β^t without cancellation; 1 if β = 0.
HONE_HOST_DEVICE inline double bias_correction(double beta, Index t) {
  return beta > 0 ? -::expm1(static_cast<double>(t) * ::log(beta)) : 1.0;
}

HONE_HOST_DEVICE inline float signed_scale(bool maximize, double grad_scale) {
  return static_cast<float>(maximize ? -grad_scale : grad_scale);
}

}  // namespace hone::kernels
