// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <variant>

#include "hone/core/check.h"
#include "hone/tune/search/proposer.h"

namespace hone::tune {
namespace {

// The density of a set of trials along one categorical parameter: counts with one more for each
// choice.
class ChoiceDensity {
 public:
  ChoiceDensity(const Categorical& domain, std::span<const Value* const> seen)
      : choices_(domain.choices), weights_(choices_.size(), 1.0) {
    for (const Value* value : seen) weights_[position_of(*value)] += 1;
    total_ = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  }

  Value draw(PhiloxStream& random) const {
    double rest = random.uniform_double() * total_;
    std::size_t i = 0;
    for (; i + 1 < weights_.size() && rest >= weights_[i]; ++i) rest -= weights_[i];
    return choices_[i];
  }
  double log_density(const Value& value) const {
    return std::log(weights_[position_of(value)] / total_);
  }

 private:
  std::size_t position_of(const Value& value) const {
    return static_cast<std::size_t>(std::ranges::find(choices_, value) - choices_.begin());
  }

  const std::vector<Value>& choices_;
  std::vector<double> weights_;
  double total_ = 0;
};

// The same along a numeric parameter: the adaptive Parzen estimator. It is a mixture of equally
// heavy normal distributions, truncated to the axis: one as wide as the axis at its center, and one
// at each value seen, as wide as the larger gap to its neighbors.
class ParzenDensity {
 public:
  ParzenDensity(const Axis& axis, std::span<const Value* const> seen) : axis_(axis) {
    const double width = axis.high() - axis.low(), center = axis.low() + width / 2;
    std::vector<double> means{center};
    for (const Value* value : seen) means.push_back(axis.coordinate(*value));
    std::ranges::sort(means);
    const double least = width / std::min(100.0, static_cast<double>(means.size()));
    for (std::size_t i = 0; i < means.size(); ++i) {
      const double left = means[i] - (i == 0 ? axis.low() : means[i - 1]);
      const double right = (i + 1 == means.size() ? axis.high() : means[i + 1]) - means[i];
      parts_.push_back({means[i], std::clamp(std::max(left, right), least, width), 0});
    }
    parts_[static_cast<std::size_t>(std::ranges::find(means, center) - means.begin())].deviation =
        width;
    for (Part& part : parts_) part.inside = mass(part, axis.low(), axis.high());
  }

  Value draw(PhiloxStream& random) const {
    const auto chosen = draw_below(random, static_cast<Index>(parts_.size()));
    const Part& part = parts_[static_cast<std::size_t>(chosen)];
    return axis_.value(draw_truncated(axis_, part.mean, part.deviation, random));
  }
  double log_density(const Value& value) const {
    double sum = 0;
    if (axis_.is_discrete()) {
      const auto [low, high] = axis_.cell(value);
      for (const Part& part : parts_) sum += mass(part, low, high) / part.inside;
    } else {
      const double x = axis_.coordinate(value);
      for (const Part& part : parts_) {
        const double z = (x - part.mean) / part.deviation;
        sum += std::exp(-z * z / 2) / (part.deviation * part.inside);
      }
    }
    return std::log(sum / static_cast<double>(parts_.size()));
  }

 private:
  struct Part {
    double mean, deviation, inside;  // `inside` is the mass on the axis
  };

  static double mass(const Part& part, double low, double high) {
    const auto below = [&part](double x) {
      return std::erfc((part.mean - x) / (part.deviation * std::numbers::sqrt2)) / 2;
    };
    return below(high) - below(low);
  }

  Axis axis_;
  std::vector<Part> parts_;
};

using Density = std::variant<ChoiceDensity, ParzenDensity>;

class TpeProposer final : public Proposer {
 public:
  TpeProposer(const TpeMethod& method, const SearchState& state)
      : method_(method), sampler_(state) {}

  std::optional<Proposal> propose(const SearchState& state) override {
    const auto n = static_cast<Index>(state.trials.size());
    if (n >= method_.trials) return {};
    PhiloxStream random = stream_of(state);
    const bool is_initial = n < std::max(method_.initial, static_cast<Index>(state.first.size()));
    std::optional<Point> point;
    if (!is_initial) point = propose_likely(state, random);
    if (!point) point = sampler_.draw_untried(state, random);
    if (!point) return {};
    return Proposal{*std::move(point)};
  }

 private:
  // The number of good trials of a ranked list: infeasible ones are never good.
  std::size_t count_good(const SearchState& state, std::span<const std::size_t> ranked) const {
    const auto n = static_cast<double>(ranked.size());
    const auto wanted = static_cast<std::size_t>(std::ceil(method_.gamma * n));
    const auto feasible = static_cast<std::size_t>(std::ranges::count_if(
        ranked, [&](std::size_t i) { return state.trials[i].outcome.feasible; }));
    return std::min({std::max<std::size_t>(wanted, 1), ranked.size() - 1, feasible});
  }

  static Density density_of(const SearchState& state, std::size_t parameter,
                            std::span<const std::size_t> trials) {
    std::vector<const Value*> seen;
    for (const std::size_t i : trials) {
      seen.push_back(&state.trials[i].point.values[parameter].second);
    }
    const Parameter& own = state.space.parameters()[parameter];
    if (const auto* domain = std::get_if<Categorical>(&own.domain)) {
      return ChoiceDensity(*domain, seen);
    }
    return ParzenDensity(Axis(own), seen);
  }

  // Empty if none of the draws is new.
  std::optional<Point> propose_likely(const SearchState& state, PhiloxStream& random) const {
    std::vector<std::size_t> ranked(state.trials.size());
    std::iota(ranked.begin(), ranked.end(), std::size_t{0});
    std::ranges::sort(ranked,
                      [&](std::size_t a, std::size_t b) { return ranks_before(state, a, b); });
    const std::span<const std::size_t> all = ranked;
    const std::size_t good_count = count_good(state, all);
    std::vector<std::optional<std::pair<Density, Density>>> densities(state.space.size());
    for (std::size_t i = 0; i < state.space.size(); ++i) {
      if (state.space.levels(i) == 1) continue;
      densities[i].emplace(density_of(state, i, all.first(good_count)),
                           density_of(state, i, all.subspan(good_count)));
    }
    std::optional<Point> best;
    double best_score = 0;
    Index found = 0;
    for (Index draw = 0; draw < 10 * method_.candidates && found < method_.candidates; ++draw) {
      Point point;
      double score = 0;
      for (std::size_t i = 0; i < state.space.size(); ++i) {
        const auto value_of = [&](const auto& density) { return density.draw(random); };
        Value value =
            densities[i] ? std::visit(value_of, densities[i]->first) : state.space.value(i, 0);
        const auto log_of = [&](const auto& density) { return density.log_density(value); };
        if (densities[i]) {
          score +=
              std::visit(log_of, densities[i]->first) - std::visit(log_of, densities[i]->second);
        }
        point.values.emplace_back(state.space.parameters()[i].name, std::move(value));
      }
      if (was_tried(state, point)) continue;
      ++found;
      if (best && !(score > best_score)) continue;
      best = std::move(point);
      best_score = score;
    }
    return best;
  }

  TpeMethod method_;
  Sampler sampler_;
};

}  // namespace

std::unique_ptr<Proposer> make_tpe(const TpeMethod& method, const SearchState& state) {
  constexpr std::string_view kOp = "TPE search";
  HONE_CHECK(method.trials >= 1, kOp, "at least 1 trial", method.trials);
  HONE_CHECK(method.initial >= 2, kOp, "at least 2 initial trials", method.initial);
  HONE_CHECK(method.candidates >= 1 && method.candidates <= 1'000'000, kOp,
             "1 to 1000000 candidates", method.candidates);
  HONE_CHECK(method.gamma > 0 && method.gamma < 1, kOp, "a gamma between 0 and 1", method.gamma);
  return std::make_unique<TpeProposer>(method, state);
}

}  // namespace hone::tune
