// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "hone/train/optim/lr/scheduler.h"

namespace hone::optim {

enum class Anneal { Cosine, Linear };

// Names and defaults of Python's OneCycleLR.
struct OneCycleLROptions {
  std::vector<double> max_lr = {};  // one for all groups, or one for each
  Index total_steps = 0;            // T
  double pct_start = 0.3;           // share of T in which the rate rises, above 0 and below 1
  Anneal anneal = Anneal::Cosine;
  bool cycle_momentum = true;
  double base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25, final_div_factor = 1e4;  // infinity: down to 0
  bool three_phase = false;                        // pct_start at most 0.5
};

// Rate from η_max/div_factor at step 0 up to η_max at pct_start·T - 1, then down to
// η_max/(div_factor·final_div_factor) at T - 1 (arXiv 1708.07120). Three phases: back to
// η_max/div_factor at 2·pct_start·T - 2 first. Momentum runs the other way between max_momentum and
// base_momentum: that of SGD, RMSprop and the TAM family, or β₁. Base rates are not read.
// Error{InvalidArgument} beyond step T, and for an optimizer without momentum when it is to move.
class OneCycleLR final : public Scheduler {
 public:
  OneCycleLR(torch::optim::Optimizer& optimizer, OneCycleLROptions options);
  double rate_at(Index step, std::size_t group, double base) const override;
  void apply_momentum(Index step) override;

 private:
  // Where the rate and the momentum stand in a phase.
  enum class Level { Initial, Max, Min };
  struct Phase {
    double end = 0;  // step, fractional
    Level from = Level::Initial, to = Level::Initial;
  };

  void check() const;
  // Where a number with these values, by Level, stands at a step.
  double interpolate(Index step, const std::array<double, 3>& levels) const;

  OneCycleLROptions options_;
  std::vector<Phase> phases_;
};

}  // namespace hone::optim
