// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "hone/train/optim/optim_config.h"

namespace hone::trainer {

// How far the TAM family moves a weight in one step while its gradient is constant, which is nearly
// true in the first steps. With s = 1 - γ^(t-1), d = (1 + s) / 2, or d = fixed_damping if that is
// above 0, and the scheduled rate η_t, per unit of gradient,
//   m_t = β m_(t-1) + ε + d      TAM: η_t m_t; AdaTAM: η_t m_t / sqrt(1 - β2^t)
struct FirstSteps {
  double largest = 0;  // weights (AdaTAM), or weights per unit of gradient (TAM)
  Index at = 0;        // its step, from 1
};
// Returns the largest of the first min(steps, 2000) steps. `optim` must not have values at "auto";
// its rule is tam, adatam or adatamw.
FirstSteps first_steps_of(const optim::OptimConfig& optim, const optim::LrConfig& lr, double peak,
                          Index steps);

// Returns a warning if TAM, AdaTAM or AdaTAMW starts with steps several times as large as SGD or
// AdamW with the job's defaults (`rules`). Empty otherwise, and for other rules.
std::optional<std::string> first_steps_warning(const optim::OptimConfig& optim,
                                               const optim::LrConfig& lr, double peak,
                                               optim::RuleTable rules, Index steps);
// Logs first_steps_warning(), if there is one.
void warn_of_first_steps(const optim::OptimConfig& optim, const optim::LrConfig& lr, double peak,
                         optim::RuleTable rules, Index steps);

}  // namespace hone::trainer
