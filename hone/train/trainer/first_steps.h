// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "hone/train/optim/optim_config.h"

namespace hone::trainer {

// How far the TAM family moves a weight in a step while its gradient stays the same, which in the
// first steps it nearly does. With s = 1 - γ^(t-1) and η_t the scheduled rate, per unit of gradient
//   m_t = β m_(t-1) + (ε + (1 + s) / 2)      TAM: η_t m_t; AdaTAM: η_t m_t / sqrt(1 - β2^t)
struct FirstSteps {
  double largest = 0;  // weights (AdaTAM), or weights per unit of gradient (TAM)
  Index at = 0;        // its step, from 1
};
// The largest of the first min(steps, 2000) steps. `optim` has no value left at auto; its rule is
// tam, adatam or adatamw.
FirstSteps first_steps_of(const optim::OptimConfig& optim, const optim::LrConfig& lr, double peak,
                          Index steps);

// What to tell a user whose TAM, AdaTAM or AdaTAMW starts with steps several times as large as
// those with which the job's SGD or AdamW trains well (their defaults in `rules`); nothing for
// other rules and where it does not.
std::optional<std::string> first_steps_warning(const optim::OptimConfig& optim,
                                               const optim::LrConfig& lr, double peak,
                                               optim::RuleTable rules, Index steps);
// Logs it.
void warn_of_first_steps(const optim::OptimConfig& optim, const optim::LrConfig& lr, double peak,
                         optim::RuleTable rules, Index steps);

}  // namespace hone::trainer
