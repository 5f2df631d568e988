// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "hone/core/check.h"
#include "hone/tune/search/proposer.h"

namespace hone::tune {
namespace {

constexpr double kMutationWidth = 0.2;  // the deviation of a numeric mutation, in axis widths
constexpr int kAttempts = 32;           // at a new value or a new child

class EvolutionProposer final : public Proposer {
 public:
  EvolutionProposer(const EvolutionMethod& method, const SearchState& state)
      : method_(method), sampler_(state) {}

  std::optional<Proposal> propose(const SearchState& state) override {
    const auto n = static_cast<Index>(state.trials.size());
    if (n >= method_.population * method_.generations) return {};
    PhiloxStream random = stream_of(state);
    std::optional<Point> point;
    if (n >= method_.population) point = breed(state, random);
    if (!point) point = sampler_.draw_untried(state, random);
    if (!point) return {};
    return Proposal{*std::move(point)};
  }

 private:
  // The last complete generation and the best trials before it.
  std::vector<std::size_t> parents_of(const SearchState& state) const {
    const auto population = static_cast<std::size_t>(method_.population);
    const std::size_t end = state.trials.size() / population * population;
    const std::size_t begin = end - population;
    std::vector<std::size_t> earlier(begin), parents(population);
    std::iota(earlier.begin(), earlier.end(), std::size_t{0});
    std::iota(parents.begin(), parents.end(), begin);
    std::ranges::sort(earlier,
                      [&](std::size_t a, std::size_t b) { return ranks_before(state, a, b); });
    earlier.resize(std::min(begin, static_cast<std::size_t>(method_.elite)));
    parents.insert(parents.end(), earlier.begin(), earlier.end());
    return parents;
  }

  const Point& select(const SearchState& state, std::span<const std::size_t> parents,
                      PhiloxStream& random) const {
    const auto draw = [&] {
      const Index i = draw_below(random, static_cast<Index>(parents.size()));
      return parents[static_cast<std::size_t>(i)];
    };
    std::size_t best = draw();
    for (Index i = 1; i < method_.tournament; ++i) {
      const std::size_t rival = draw();
      if (ranks_before(state, rival, best)) best = rival;
    }
    return state.trials[best].point;
  }

  static void mutate(const Space& space, Point& child, PhiloxStream& random) {
    const auto i = static_cast<std::size_t>(draw_below(random, static_cast<Index>(space.size())));
    Value& value = child.values[i].second;
    const Value before = value;
    const Parameter& own = space.parameters()[i];
    for (int attempt = 0; attempt < kAttempts && value == before; ++attempt) {
      if (std::holds_alternative<Categorical>(own.domain)) {
        value = draw_value(space, i, random);
      } else {
        const Axis axis(own);
        const double deviation = kMutationWidth * (axis.high() - axis.low());
        value = axis.value(draw_truncated(axis, axis.coordinate(before), deviation, random));
      }
    }
  }

  // Empty if no child is new.
  std::optional<Point> breed(const SearchState& state, PhiloxStream& random) const {
    const std::vector<std::size_t> parents = parents_of(state);
    Point child = select(state, parents, random);
    if (random.uniform_double() < method_.crossover) {
      const Point& other = select(state, parents, random);
      for (std::size_t i = 0; i < child.values.size(); ++i) {
        if (random() & 1) child.values[i] = other.values[i];
      }
    }
    if (random.uniform_double() < method_.mutation) mutate(state.space, child, random);
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (!was_tried(state, child)) return child;
      mutate(state.space, child, random);
    }
    return std::nullopt;
  }

  EvolutionMethod method_;
  Sampler sampler_;
};

}  // namespace

std::unique_ptr<Proposer> make_evolution(const EvolutionMethod& method, const SearchState& state) {
  constexpr std::string_view kOp = "evolutionary search";
  constexpr Index kMost = 1'000'000;
  HONE_CHECK(method.population >= 2 && method.population <= kMost, kOp,
             "a population of 2 to 1000000", method.population);
  HONE_CHECK(method.generations >= 1 && method.generations <= kMost, kOp,
             "1 to 1000000 generations", method.generations);
  HONE_CHECK(method.mutation >= 0 && method.mutation <= 1, kOp,
             "a probability of mutation in [0, 1]", method.mutation);
  HONE_CHECK(method.crossover >= 0 && method.crossover <= 1, kOp,
             "a probability of crossover in [0, 1]", method.crossover);
  HONE_CHECK(method.tournament >= 1 && method.tournament <= kMost, kOp,
             "a tournament of 1 to 1000000", method.tournament);
  HONE_CHECK(method.elite >= 0 && method.elite <= kMost, kOp, "an elite of 0 to 1000000",
             method.elite);
  return std::make_unique<EvolutionProposer>(method, state);
}

}  // namespace hone::tune
