// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "hone/core/check.h"
#include "hone/tune/search/proposer.h"

namespace hone::tune {
namespace {

class HyperbandProposer final : public Proposer {
 public:
  HyperbandProposer(const HyperbandMethod& method, const SearchState& state)
      : eta_(method.eta), sampler_(state) {
    for (Index power = eta_; power <= method.ratio; power *= eta_) ++last_bracket_;
  }

  // Follows the schedule to the rung that the reported trials do not fill.
  std::optional<Proposal> propose(const SearchState& state) override {
    const std::size_t n = state.trials.size();
    const auto count = state.space.count();
    std::size_t begin = 0;  // of the rung
    Index drawn = 0;        // points of all brackets before
    for (Index s = last_bracket_; s >= 0; --s) {
      const Index wanted = (last_bracket_ + 1) / (s + 1) * power_of(s);
      const Index size = count ? std::min(wanted, *count - drawn) : wanted;
      drawn += size;
      auto rung_size = static_cast<std::size_t>(size);
      for (Index rung = 0; rung <= s && rung_size > 0; ++rung) {
        const double resource = 1 / static_cast<double>(power_of(s - rung));
        if (n < begin + rung_size) return propose_in(state, begin, rung, resource);
        survivors_ = pick_survivors(state, begin, rung_size);
        begin += rung_size;
        rung_size = survivors_.size();
      }
    }
    return {};
  }

 private:
  Index power_of(Index exponent) const {
    Index power = 1;
    for (Index i = 0; i < exponent; ++i) power *= eta_;
    return power;
  }

  // The best 1 / eta of the rung's feasible trials, at least 1, the best one first.
  std::vector<std::size_t> pick_survivors(const SearchState& state, std::size_t begin,
                                          std::size_t size) const {
    std::vector<std::size_t> rung(size);
    std::iota(rung.begin(), rung.end(), begin);
    std::ranges::sort(rung,
                      [&](std::size_t a, std::size_t b) { return ranks_before(state, a, b); });
    rung.resize(std::max<std::size_t>(size / static_cast<std::size_t>(eta_), 1));
    std::erase_if(rung, [&](std::size_t i) { return !state.trials[i].outcome.feasible; });
    return rung;
  }

  std::optional<Proposal> propose_in(const SearchState& state, std::size_t begin, Index rung,
                                     double resource) {
    if (rung > 0) {
      const std::size_t survivor = survivors_[state.trials.size() - begin];
      return Proposal{state.trials[survivor].point, resource};
    }
    PhiloxStream random = stream_of(state);
    auto point = sampler_.draw_untried(state, random);
    if (!point) return {};
    return Proposal{*std::move(point), resource};
  }

  Index eta_, last_bracket_ = 0;
  Sampler sampler_;
  std::vector<std::size_t> survivors_;  // of the rung before
};

}  // namespace

std::unique_ptr<Proposer> make_hyperband(const HyperbandMethod& method, const SearchState& state) {
  constexpr std::string_view kOp = "Hyperband search";
  constexpr Index kMost = 1'000'000;
  HONE_CHECK(method.ratio >= 1 && method.ratio <= kMost, kOp, "a ratio of 1 to 1000000",
             method.ratio);
  HONE_CHECK(method.eta >= 2 && method.eta <= kMost, kOp, "an eta of 2 to 1000000", method.eta);
  return std::make_unique<HyperbandProposer>(method, state);
}

}  // namespace hone::tune
