// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "hone/core/philox.h"
#include "hone/tune/search/search.h"

namespace hone::tune {

struct Proposal {
  Point point;
  double resource = 1;
};

// The rule of one method. A proposer may keep what it has computed, but every proposal is a pure
// function of the state.
class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual std::optional<Proposal> propose(const SearchState& state) = 0;
};

// Throws Error{InvalidArgument} if a setting is out of range.
std::unique_ptr<Proposer> make_grid(const GridMethod& method, const SearchState& state);
std::unique_ptr<Proposer> make_random(const RandomMethod& method, const SearchState& state);
std::unique_ptr<Proposer> make_tpe(const TpeMethod& method, const SearchState& state);
std::unique_ptr<Proposer> make_evolution(const EvolutionMethod& method, const SearchState& state);
std::unique_ptr<Proposer> make_hyperband(const HyperbandMethod& method, const SearchState& state);

// The tried points' key.
std::string key_of(const Point& point);
inline bool was_tried(const SearchState& state, const Point& point) {
  return state.tried.contains(key_of(point));
}

// True if trial a is better than b: feasible ones before infeasible ones, then by the mean, then
// the earlier one.
bool ranks_before(const SearchState& state, std::size_t a, std::size_t b);

// The random draws of the next trial.
PhiloxStream stream_of(const SearchState& state);

// Unbiased in [0, bound), 1 <= bound <= 2^62.
Index draw_below(PhiloxStream& random, Index bound);

// Draws points that were not tried.
class Sampler {
 public:
  explicit Sampler(const SearchState& state) : shuffle_(state.seed, 0) {}

  // The first point of state.first that was not tried, otherwise a random one, uniform on every
  // parameter's axis. Empty if a discrete space is exhausted.
  std::optional<Point> draw_untried(const SearchState& state, PhiloxStream& random);

 private:
  // The next position of a random permutation (Fisher and Yates), which depends on the seed only.
  Index step(Index count);

  PhiloxStream shuffle_;
  std::unordered_map<Index, Index> moved_;  // the entries of the permutation that were swapped
  Index steps_ = 0;
  std::optional<Index> position_;  // all positions of earlier steps were tried
};

// A numeric parameter on its linear or logarithmic axis. A value of a discrete one has the cell
// between the midpoints to its neighbors.
class Axis {
 public:
  // For an IntRange or a FloatRange.
  explicit Axis(const Parameter& parameter);

  double low() const { return low_; }
  double high() const { return high_; }
  bool is_discrete() const { return step_ > 0; }
  double coordinate(const Value& value) const;
  // The value at, or nearest to, a coordinate.
  Value value(double coordinate) const;
  // The cell of a value of a discrete parameter.
  std::pair<double, double> cell(const Value& value) const;

 private:
  double transform(double value) const;

  double first_ = 0, last_ = 0, step_ = 0;  // step 0: an interval
  bool log_ = false, whole_ = false;
  double low_ = 0, high_ = 0;
};

// Uniform on the parameter's axis.
Value draw_value(const Space& space, std::size_t parameter, PhiloxStream& random);
// Normal around `mean`, within the axis.
double draw_truncated(const Axis& axis, double mean, double deviation, PhiloxStream& random);

}  // namespace hone::tune
