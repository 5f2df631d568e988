// SPDX-License-Identifier: Apache-2.0
#include "hone/measure/pareto.h"

#include <algorithm>

#include "hone/core/check.h"

namespace hone::measure {
namespace {

bool is_better(const Objective& a, const Objective& b) { return a.high < b.low; }

bool dominates(const std::vector<Objective>& a, const std::vector<Objective>& b) {
  bool better_somewhere = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (is_better(b[i], a[i])) return false;
    better_somewhere |= is_better(a[i], b[i]);
  }
  return better_somewhere;
}

}  // namespace

std::vector<Index> pareto_front(std::span<const std::vector<Objective>> candidates) {
  std::vector<Index> front;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    HONE_CHECK(candidates[i].size() == candidates[0].size(), "pareto_front",
               concat(candidates[0].size(), " objectives"), candidates[i].size());
    const bool beaten = std::ranges::any_of(
        candidates, [&](const auto& other) { return dominates(other, candidates[i]); });
    if (!beaten) front.push_back(static_cast<Index>(i));
  }
  return front;
}

}  // namespace hone::measure
