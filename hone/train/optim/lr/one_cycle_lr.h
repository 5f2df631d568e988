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

// The rate rises from η_max/div_factor at step 0 to η_max at pct_start·T - 1, then falls to
// η_max/(div_factor·final_div_factor) at T - 1 (arXiv 1708.07120). With three phases, it first
// returns to η_max/div_factor at 2·pct_start·T - 2. Momentum moves inversely between max_momentum
// and base_momentum. It is the momentum of SGD, RMSprop and the TAM family, or β₁. Base rates are
// ignored. Throws Error{InvalidArgument} beyond step T, and for an optimizer without momentum if
// cycle_momentum is set.
class OneCycleLR final : public Scheduler {
 public:
  OneCycleLR(torch::optim::Optimizer& optimizer, OneCycleLROptions options);
  double rate_at(Index step, std::size_t group, double base) const override;
  void apply_momentum(Index step) override;

 private:
  // Value of the rate or the momentum at the end of a phase.
  enum class Level { Initial, Max, Min };
  struct Phase {
    double end = 0;  // step, fractional
    Level from = Level::Initial, to = Level::Initial;
  };

  void check() const;
  // Returns the value at a step of a number with these values by Level.
  double interpolate(Index step, const std::array<double, 3>& levels) const;

  OneCycleLROptions options_;
  std::vector<Phase> phases_;
};

}  // namespace hone::optim
