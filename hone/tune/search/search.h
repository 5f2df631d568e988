// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <variant>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"
#include "hone/tune/search/space.h"

namespace hone::tune {

enum class Direction { Maximize, Minimize };

// The result of a trial. All repeats are kept and their mean decides, because the best of several
// noisy runs says more about the noise than about the point. A run that failed is infeasible.
struct Outcome {
  bool feasible = false;
  std::vector<double> samples;
};

double mean_of(const Outcome& outcome);  // of at least one sample

struct Trial {
  Point point;
  double resource = 1;  // the share of a full evaluation, in (0, 1]
  Outcome outcome;
};

// All points of a discrete space in Cartesian order, or the first `trials` of them.
struct GridMethod {
  std::optional<Index> trials;
};
// Random points without replacement.
struct RandomMethod {
  Index trials = 20;
};
// The tree-structured Parzen estimator (Bergstra et al., "Algorithms for hyper-parameter
// optimization", 2011): after `initial` random trials, the good set is the best ceil(gamma n) of n
// trials, at least 1 and leaving at least 1; infeasible trials are never good. Of `candidates`
// draws from the good set's density l, the one with the largest l / g is tried, where g is the
// density of the rest.
struct TpeMethod {
  Index trials = 100, initial = 10, candidates = 24;
  double gamma = 0.25;
};
// Every generation tries `population` new points. Their parents are the generation before and the
// `elite` best trials before that, chosen as the best of `tournament` draws. A child is crossed
// (each parameter from either parent) with the probability `crossover`, and has one parameter
// changed with the probability `mutation`, or until it is new.
struct EvolutionMethod {
  Index population = 5, generations = 10;
  double mutation = 0.5, crossover = 0.5;
  Index tournament = 5, elite = 1;
};
// Hyperband (Li et al., 1603.06560): brackets of successive halving, where the smallest evaluation
// is 1 / ratio of a full one. Bracket s of s_max + 1 starts with floor((s_max + 1) / (s + 1)) eta^s
// points, as in the paper's table, whose numbers are not those of its algorithm 1.
struct HyperbandMethod {
  Index ratio = 81, eta = 3;
};
using Method = std::variant<GridMethod, RandomMethod, TpeMethod, EvolutionMethod, HyperbandMethod>;

// What a search decides from.
struct SearchState {
  Space space;
  Direction direction;
  std::uint64_t seed = 0;
  std::vector<Point> first;  // tried before random points
  std::vector<Trial> trials;
  std::unordered_set<std::string> tried;  // the JSON texts of the points in `trials`
};

class Proposer;

// A search for the best point of a space. Its proposals are a pure function of the seed and the
// trials reported so far, so that a search that is saved and loaded at any trial goes on with the
// same ones. No method tries a point twice with the same resource; a search ends when its trials
// are used up or a discrete space is exhausted.
class Search {
 public:
  // Points in `first` are tried before random ones. Throws Error{InvalidArgument} if a setting of
  // the method is out of range, if a point of `first` is not in the space, or if a grid is to cover
  // an interval.
  Search(Space space, Direction direction, Method method, std::uint64_t seed = 0,
         std::span<const Point> first = {});
  Search(Search&&) noexcept;
  Search& operator=(Search&&) noexcept;
  ~Search();

  // The point to try; the same one until it is reported. Empty at the end.
  const std::optional<Point>& next() const { return pending_; }
  // The share of a full evaluation that next() is to get, in (0, 1]. 1 except for Hyperband.
  double resource() const { return resource_; }
  bool finished() const { return !pending_; }
  // Throws Error{InvalidArgument} unless `point` is next(), and unless a feasible outcome has at
  // least one sample and every sample is finite.
  void report(const Point& point, Outcome outcome);

  const std::vector<Trial>& trials() const { return state_.trials; }
  // The position of the best feasible trial with full resource; the earlier one of equals.
  std::optional<std::size_t> best() const;

  // The number of trials at the end, reported ones included; empty for Hyperband, which drops
  // infeasible points.
  std::optional<Index> planned_trials() const;

  // The settings and all trials. A pending point is proposed again after loading.
  Json save() const;
  // Replaces the trials by saved ones. Throws Error{CorruptFile}, and changes nothing, if `saved`
  // is malformed, was saved by a search with other settings, or has a trial that this search would
  // not have proposed.
  void load(const Json& saved);

 private:
  void record(Trial trial);
  void advance();  // computes the next proposal
  void load_trial(const Json& json);
  Json settings() const;

  SearchState state_;
  Method method_;
  std::unique_ptr<Proposer> proposer_;
  std::optional<Point> pending_;
  double resource_ = 1;
};

}  // namespace hone::tune
