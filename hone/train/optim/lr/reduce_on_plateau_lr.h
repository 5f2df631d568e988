// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"

namespace hone::optim {

enum class PlateauMode { Min, Max };                 // direction of improvement
enum class PlateauThreshold { Relative, Absolute };  // improvement: share of the best, or value

// Names and defaults of Python's ReduceLROnPlateau.
struct ReduceOnPlateauLROptions {
  PlateauMode mode = PlateauMode::Min;
  double factor = 0.1;
  Index patience = 10;
  double threshold = 1e-4;
  PlateauThreshold threshold_mode = PlateauThreshold::Relative;
  Index cooldown = 0;
  std::vector<double> min_lr = {0};  // one for all groups, or one for each
  double eps = 1e-8;                 // a smaller reduction is left out
};

// The state from which, together with the options, ReduceOnPlateauLR continues.
struct ReduceOnPlateauLRState {
  double best = 0;  // an infinity before the first metric
  Index steps = 0, bad_steps = 0, cooldown_left = 0;
  std::vector<double> rates;  // of the groups
};

// In JSON an infinite `best` is the string "inf" or "-inf".
void to_json(Json& json, const ReduceOnPlateauLRState& state);
// Throws Error{CorruptFile} if the JSON is not such a state.
void from_json(const Json& json, ReduceOnPlateauLRState& state);

// Multiplies the rates by `factor` after more than `patience` metrics in a row were not better than
// the best so far. NaN is never better. After a reduction, `cooldown` metrics do not count as bad.
// As in LibTorch, this is not an LRScheduler, because step() takes a metric. A Scheduler over the
// same optimizer would overwrite the reduced rates. The optimizer must outlive this object.
class ReduceOnPlateauLR {
 public:
  ReduceOnPlateauLR(torch::optim::Optimizer& optimizer, ReduceOnPlateauLROptions options = {});

  void step(double metric);
  std::vector<double> last_rates() const;

  ReduceOnPlateauLRState state_dict() const;
  // Sets the optimizer's rates too.
  void load_state_dict(const ReduceOnPlateauLRState& state);

 private:
  void check() const;
  bool is_better(double metric) const;
  void reduce_rates();

  torch::optim::Optimizer& optimizer_;
  ReduceOnPlateauLROptions options_;
  ReduceOnPlateauLRState state_;  // except the rates, which the optimizer has
};

}  // namespace hone::optim
