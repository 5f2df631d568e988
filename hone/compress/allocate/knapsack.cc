// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/allocate/knapsack.h"

#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/text_format.h"

namespace hone::compress {
namespace {

// The loss that is saved per byte between two formats.
double slope(const FormatCost& from, const FormatCost& to) {
  return (from.loss - to.loss) / static_cast<double>(to.bytes - from.bytes);
}

}  // namespace

std::vector<FormatCost> lower_hull(std::vector<FormatCost> costs) {
  std::ranges::stable_sort(costs, [](const FormatCost& a, const FormatCost& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.loss < b.loss;
  });
  std::vector<FormatCost> hull;
  for (FormatCost& cost : costs) {
    if (!hull.empty() && (cost.loss >= hull.back().loss || cost.bytes == hull.back().bytes))
      continue;
    while (hull.size() > 1 && slope(hull[hull.size() - 2], hull.back()) <= slope(hull.back(), cost))
      hull.pop_back();
    hull.push_back(std::move(cost));
  }
  return hull;
}

std::vector<FormatCost> choose_formats(const std::vector<MatrixGroup>& groups, Index budget) {
  std::vector<std::vector<FormatCost>> hulls;
  Index used = 0;
  for (const MatrixGroup& group : groups) {
    HONE_REQUIRE(!group.costs.empty(), "allocate", concat("No format fits ", group.name, "."));
    hulls.push_back(lower_hull(group.costs));
    used += hulls.back().front().bytes;
  }
  HONE_CHECK(used <= budget, "allocate",
             concat("a budget of at least ", format_bytes(used), " for the weights"),
             format_bytes(std::max<Index>(budget, 0)));
  std::vector<std::size_t> at(groups.size());
  for (;;) {
    std::size_t best = groups.size();
    double most = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& hull = hulls[g];
      if (at[g] + 1 >= hull.size()) continue;
      const FormatCost &now = hull[at[g]], &next = hull[at[g] + 1];
      if (used + next.bytes - now.bytes > budget || slope(now, next) <= most) continue;
      most = slope(now, next);
      best = g;
    }
    if (best == groups.size()) break;
    used += hulls[best][at[best] + 1].bytes - hulls[best][at[best]].bytes;
    ++at[best];
  }
  std::vector<FormatCost> chosen;
  for (std::size_t g = 0; g < groups.size(); ++g) chosen.push_back(hulls[g][at[g]]);
  return chosen;
}

}  // namespace hone::compress
