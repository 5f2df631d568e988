// SPDX-License-Identifier: Apache-2.0
#include "hone/tune/search/rank_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "hone/core/check.h"
#include "hone/core/names.h"

namespace hone::tune {
namespace {

constexpr std::string_view kPlan = "rank plan";
constexpr std::size_t kStarts = 8;  // of the repair

using Choice = std::vector<std::size_t>;  // an option of each layer

struct Sums {
  double cost = 0, error = 0;
};

// The options of one layer that no other one beats in both numbers, by rising cost.
struct Curve {
  std::vector<RankOption> options;  // errors are weighted
  std::vector<std::size_t> hull;    // those on the lower convex hull
};

// How much error the hull's step from its entry i - 1 to i saves for each unit of cost.
double slope_before(const Curve& curve, std::size_t i) {
  const RankOption& from = curve.options[curve.hull[i - 1]];
  const RankOption& to = curve.options[curve.hull[i]];
  return (from.error - to.error) / (to.cost - from.cost);
}

Curve curve_of(const LayerCurve& layer) {
  std::vector<RankOption> sorted = layer.options;
  for (RankOption& option : sorted) option.error *= layer.sensitivity;
  std::ranges::sort(sorted, [](const RankOption& a, const RankOption& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.error < b.error;
  });
  Curve curve;
  for (const RankOption& option : sorted) {
    if (!curve.options.empty() && option.error >= curve.options.back().error) continue;
    curve.options.push_back(option);
    curve.hull.push_back(curve.options.size() - 1);
    for (std::size_t last = curve.hull.size() - 1; last >= 2; --last) {
      if (slope_before(curve, last) < slope_before(curve, last - 1)) break;
      curve.hull.erase(curve.hull.end() - 2);
    }
  }
  return curve;
}

void check_curve(const LayerCurve& layer) {
  const auto stop = [&](std::string_view problem) {
    fail_argument(kPlan, concat("Layer ", quote_name(layer.name), " ", problem));
  };
  const auto is_valid = [](double number) { return number >= 0 && number <= 1e150; };
  if (layer.options.empty()) stop("has no options.");
  if (!is_valid(layer.sensitivity)) stop("has no sensitivity in [0, 1e150].");
  std::set<Index> ranks;
  for (const RankOption& option : layer.options) {
    if (option.rank < 0) stop("has a negative rank.");
    if (!ranks.insert(option.rank).second) stop("has a rank twice.");
    if (!is_valid(option.cost)) stop("has a cost outside [0, 1e150].");
    if (!is_valid(option.error)) stop("has an error outside [0, 1e150].");
  }
}

class Planner {
 public:
  Planner(std::span<const LayerCurve> layers, double budget) : budget_(budget) {
    for (const LayerCurve& layer : layers) curves_.push_back(curve_of(layer));
  }

  std::optional<RankPlan> plan() const {
    Choice best(curves_.size());
    for (std::size_t l = 0; l < curves_.size(); ++l) best[l] = curves_[l].options.size() - 1;
    if (sums_of(best).error > budget_) return std::nullopt;
    std::vector<double> slopes;
    for (const Curve& curve : curves_) {
      for (std::size_t i = 1; i < curve.hull.size(); ++i) slopes.push_back(slope_before(curve, i));
    }
    std::ranges::sort(slopes, std::greater());
    // The fewest steps, from the steepest on, that keep the budget.
    std::size_t low = 0, high = slopes.size();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (sums_of(choose(slopes, middle)).error <= budget_) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    // An exchange cannot leave every local optimum, so a few choices start it.
    repair(best);
    const std::size_t end = std::min(low + kStarts, slopes.size() + 1);
    for (std::size_t steps = low; steps < end; ++steps) {
      Choice other = choose(slopes, steps);
      if (sums_of(other).error > budget_) continue;  // by rounding
      repair(other);
      if (sums_of(other).cost < sums_of(best).cost) best = std::move(other);
    }
    RankPlan plan;
    for (std::size_t l = 0; l < curves_.size(); ++l) {
      plan.ranks.push_back(curves_[l].options[best[l]].rank);
    }
    plan.cost = sums_of(best).cost;
    plan.error = sums_of(best).error;
    return plan;
  }

 private:
  Sums sums_of(const Choice& choice) const {
    Sums sums;
    for (std::size_t l = 0; l < curves_.size(); ++l) {
      sums.cost += curves_[l].options[choice[l]].cost;
      sums.error += curves_[l].options[choice[l]].error;
    }
    return sums;
  }

  // Takes the `steps` steepest hull steps; of equally steep ones, those of earlier layers.
  Choice choose(std::span<const double> slopes, std::size_t steps) const {
    Choice choice(curves_.size(), 0);
    if (steps == 0) return choice;
    const double least = slopes[steps - 1];
    std::size_t equal = 0;  // steps of the slope `least` to take
    for (std::size_t i = steps; i-- > 0 && slopes[i] == least;) ++equal;
    for (std::size_t l = 0; l < curves_.size(); ++l) {
      const Curve& curve = curves_[l];
      for (std::size_t i = 1; i < curve.hull.size(); ++i) {
        const double slope = slope_before(curve, i);
        if (slope < least || (slope == least && equal-- == 0)) break;
        choice[l] = curve.hull[i];
      }
    }
    return choice;
  }

  // The cheapest option of a layer whose error is at most `most`; its dearest one if none is.
  std::size_t cheapest_within(std::size_t layer, double most) const {
    const auto& options = curves_[layer].options;
    std::size_t i = 0;
    while (i + 1 < options.size() && options[i].error > most) ++i;
    return i;
  }

  // Replaces options of one or two layers while that saves cost within the budget.
  void repair(Choice& best) const {
    Sums sums = sums_of(best);
    bool is_better = true;
    while (is_better) {
      is_better = false;
      for (std::size_t a = 0; a < curves_.size(); ++a) {
        for (std::size_t i = 0; i < curves_[a].options.size(); ++i) {
          for (std::size_t b = 0; b < curves_.size(); ++b) {
            is_better |= try_exchange(best, sums, a, i, b);
          }
        }
      }
    }
  }

  // Gives layer a its option i, and layer b the cheapest one that then keeps the budget.
  bool try_exchange(Choice& best, Sums& sums, std::size_t a, std::size_t i, std::size_t b) const {
    const RankOption& from = curves_[a].options[best[a]];
    const RankOption& to = curves_[a].options[i];
    double saved = from.cost - to.cost;
    std::size_t j = i;
    if (b != a) {
      const RankOption& other = curves_[b].options[best[b]];
      j = cheapest_within(b, budget_ - sums.error + from.error - to.error + other.error);
      saved += other.cost - curves_[b].options[j].cost;
    }
    if (!(saved > 0)) return false;
    Choice changed = best;
    changed[a] = i;
    changed[b] = j;
    const Sums now = sums_of(changed);  // the differences above are rounded
    if (!(now.error <= budget_ && now.cost < sums.cost)) return false;
    best = std::move(changed);
    sums = now;
    return true;
  }

  double budget_;
  std::vector<Curve> curves_;
};

}  // namespace

std::vector<Index> ranks_below_dense(Index in, Index out) {
  HONE_CHECK(in >= 1 && out >= 1, kPlan, "sizes of at least 1", concat(in, " x ", out));
  const double rows = static_cast<double>(in), columns = static_cast<double>(out);
  const double most = 0.9 * (rows / (rows + columns) * columns);
  std::vector<Index> ranks;
  for (Index rank = 16; static_cast<double>(rank) < most; rank *= 2) ranks.push_back(rank);
  return ranks;
}

std::optional<RankPlan> plan_ranks(std::span<const LayerCurve> layers, double budget) {
  HONE_CHECK(budget >= 0, kPlan, "a budget of at least 0", budget);
  for (const LayerCurve& layer : layers) check_curve(layer);
  return Planner(layers, budget).plan();
}

}  // namespace hone::tune
