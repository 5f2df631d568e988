// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "hone/tune/search/proposer.h"

namespace hone::tune {
namespace {

// Draws before the sampler takes the next point of a permutation. Only a logarithmic axis or an
// almost exhausted space needs more.
constexpr int kDraws = 32;

Point draw_point(const Space& space, PhiloxStream& random) {
  Point point;
  for (std::size_t i = 0; i < space.size(); ++i) {
    point.values.emplace_back(space.parameters()[i].name, draw_value(space, i, random));
  }
  return point;
}

double draw_standard_normal(PhiloxStream& random) {  // Box and Muller, 1958
  const double radius = std::sqrt(-2 * std::log(random.uniform_double()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform_double());
}

}  // namespace

std::string key_of(const Point& point) { return to_json(point).dump(); }

bool ranks_before(const SearchState& state, std::size_t a, std::size_t b) {
  const Outcome& one = state.trials[a].outcome;
  const Outcome& other = state.trials[b].outcome;
  if (one.feasible != other.feasible) return one.feasible;
  if (one.feasible) {
    const double difference = mean_of(one) - mean_of(other);
    if (difference != 0) return (difference > 0) == (state.direction == Direction::Maximize);
  }
  return a < b;
}

PhiloxStream stream_of(const SearchState& state) {
  return PhiloxStream(state.seed, 1 + state.trials.size());  // stream 0 is the permutation's
}

Index draw_below(PhiloxStream& random, Index bound) {
  const std::uint64_t mask = std::bit_ceil(static_cast<std::uint64_t>(bound)) - 1;
  for (;;) {
    const std::uint64_t high = random();
    const auto draw = static_cast<Index>(((high << 32) | random()) & mask);
    if (draw < bound) return draw;
  }
}

Index Sampler::step(Index count) {
  const Index here = steps_++;
  const Index there = here + draw_below(shuffle_, count - here);
  const auto entry = [this](Index i) {
    const auto found = moved_.find(i);
    return found == moved_.end() ? i : found->second;
  };
  const Index drawn = entry(there);
  moved_[there] = entry(here);
  moved_.erase(here);
  return drawn;
}

std::optional<Point> Sampler::draw_untried(const SearchState& state, PhiloxStream& random) {
  const auto count = state.space.count();
  if (count && static_cast<Index>(state.tried.size()) >= *count) return std::nullopt;
  for (const Point& point : state.first) {
    if (!was_tried(state, point)) return point;
  }
  for (int draw = 0; draw < kDraws || !count; ++draw) {
    Point point = draw_point(state.space, random);
    if (!was_tried(state, point)) return point;
  }
  for (;;) {
    if (!position_) position_ = step(*count);
    Point point = state.space.point(*position_);
    if (!was_tried(state, point)) return point;
    position_.reset();
  }
}

Axis::Axis(const Parameter& parameter) {
  if (const auto* whole = std::get_if<IntRange>(&parameter.domain)) {
    first_ = static_cast<double>(whole->low);
    step_ = static_cast<double>(whole->step);
    last_ = first_ + std::floor((static_cast<double>(whole->high) - first_) / step_) * step_;
    log_ = whole->log;
    whole_ = true;
  } else {
    const auto& range = std::get<FloatRange>(parameter.domain);
    first_ = range.low;
    step_ = range.step;
    last_ = range.high;
    if (step_ > 0) {
      last_ = std::min(first_ + std::floor((last_ - first_) / step_ + 1e-9) * step_, last_);
    }
    log_ = range.log;
  }
  const double half = step_ / 2;
  low_ = log_ ? 2 * std::log(first_) - std::log(first_ + half) : first_ - half;
  high_ = transform(last_ + half);
}

double Axis::transform(double value) const { return log_ ? std::log(value) : value; }

double Axis::coordinate(const Value& value) const {
  return transform(whole_ ? static_cast<double>(std::get<Index>(value)) : std::get<double>(value));
}

Value Axis::value(double coordinate) const {
  double number = log_ ? std::exp(coordinate) : coordinate;
  if (step_ > 0) number = first_ + std::round((number - first_) / step_) * step_;
  number = std::clamp(number, first_, last_);
  if (whole_) return static_cast<Index>(number);
  return number + 0.0;  // -0 becomes 0
}

std::pair<double, double> Axis::cell(const Value& value) const {
  const double number =
      whole_ ? static_cast<double>(std::get<Index>(value)) : std::get<double>(value);
  return {number - first_ < step_ / 2 ? low_ : transform(number - step_ / 2),
          transform(number + step_ / 2)};
}

Value draw_value(const Space& space, std::size_t parameter, PhiloxStream& random) {
  const Parameter& own = space.parameters()[parameter];
  if (const auto* domain = std::get_if<Categorical>(&own.domain)) {
    const Index chosen = draw_below(random, static_cast<Index>(domain->choices.size()));
    return domain->choices[static_cast<std::size_t>(chosen)];
  }
  const Axis axis(own);
  return axis.value(axis.low() + random.uniform_double() * (axis.high() - axis.low()));
}

double draw_truncated(const Axis& axis, double mean, double deviation, PhiloxStream& random) {
  for (;;) {
    const double draw = mean + deviation * draw_standard_normal(random);
    if (draw >= axis.low() && draw <= axis.high()) return draw;
  }
}

}  // namespace hone::tune
