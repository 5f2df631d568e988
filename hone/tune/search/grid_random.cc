// SPDX-License-Identifier: Apache-2.0
#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/tune/search/proposer.h"

namespace hone::tune {
namespace {

class GridProposer final : public Proposer {
 public:
  explicit GridProposer(const GridMethod& method) : method_(method) {}

  std::optional<Proposal> propose(const SearchState& state) override {
    if (method_.trials && static_cast<Index>(state.trials.size()) >= *method_.trials) return {};
    for (const Point& point : state.first) {
      if (!was_tried(state, point)) return Proposal{point};
    }
    for (; position_ < *state.space.count(); ++position_) {
      Point point = state.space.point(position_);
      if (!was_tried(state, point)) return Proposal{std::move(point)};
    }
    return {};
  }

 private:
  GridMethod method_;
  Index position_ = 0;  // all points before it were tried
};

class RandomProposer final : public Proposer {
 public:
  RandomProposer(const RandomMethod& method, const SearchState& state)
      : method_(method), sampler_(state) {}

  std::optional<Proposal> propose(const SearchState& state) override {
    if (static_cast<Index>(state.trials.size()) >= method_.trials) return {};
    PhiloxStream random = stream_of(state);
    auto point = sampler_.draw_untried(state, random);
    if (!point) return {};
    return Proposal{*std::move(point)};
  }

 private:
  RandomMethod method_;
  Sampler sampler_;
};

}  // namespace

std::unique_ptr<Proposer> make_grid(const GridMethod& method, const SearchState& state) {
  HONE_CHECK(method.trials.value_or(1) >= 1, "grid search", "at least 1 trial", *method.trials);
  for (std::size_t i = 0; i < state.space.size(); ++i) {
    HONE_REQUIRE(state.space.levels(i).has_value(), "grid search",
                 concat("Parameter ", quote_name(state.space.parameters()[i].name),
                        " is an interval without a step."));
  }
  HONE_REQUIRE(state.space.count().has_value(), "grid search",
               "The space has more than 2^53 points.");
  return std::make_unique<GridProposer>(method);
}

std::unique_ptr<Proposer> make_random(const RandomMethod& method, const SearchState& state) {
  HONE_CHECK(method.trials >= 1, "random search", "at least 1 trial", method.trials);
  return std::make_unique<RandomProposer>(method, state);
}

}  // namespace hone::tune
