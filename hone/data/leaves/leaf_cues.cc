// SPDX-License-Identifier: Apache-2.0
#include "hone/data/leaves/leaf_cues.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/config/config_table.h"
#include "hone/core/portable_math.h"

namespace hone::data {
namespace {

constexpr Index kCeilingDraws = 1 << 17;
// Deviation at difficulty 1. The borders between classes are then one deviation away.
constexpr double kLargestDeviation = 0.5;

LeafCues shifted(const LeafCues& mean, double deviation, PhiloxStream& random) {
  LeafCues out = mean;
  for (double* const cue : {&out.vein, &out.blotch_x, &out.blotch_y, &out.notch}) {
    *cue += deviation * draw_normal(random);
  }
  return out;
}

double square_distance(const LeafCues& a, const LeafCues& b) {
  const double vein = a.vein - b.vein, notch = a.notch - b.notch;
  const double x = a.blotch_x - b.blotch_x, y = a.blotch_y - b.blotch_y;
  return vein * vein + x * x + y * y + notch * notch;
}

}  // namespace

constexpr Index kMostLeaves = 1'000'000;

void check_leaves(const LeavesOptions& options) {
  check_range("data.leaves.classes", options.classes, 2, 1000);
  check_range("data.leaves.size", options.size, 32, 512);
  check_range("data.leaves.train", options.train, 1, 100'000);
  check_range("data.leaves.val", options.val, 1, 100'000);
  check_range("data.leaves.test", options.test, 0, 100'000);
  const Index images = options.classes * (options.train + options.val + options.test);
  HONE_CHECK(images <= kMostLeaves, "data.leaves", concat("at most ", kMostLeaves, " images"),
             images);
  check_range("data.leaves.difficulty", options.difficulty, 0, 1);
  check_range("data.leaves.seed", options.seed, 0, Index{1} << 62);
}

Index leaf_levels(Index classes) {
  Index levels = 2;
  while (levels * levels * levels < classes) ++levels;
  return levels;
}

// Sums of digits modulo the number of levels: a bijection in which every run of as many classes as
// there are levels has each level of each cue once.
std::array<Index, 3> levels_of_class(Index label, Index classes) {
  const Index levels = leaf_levels(classes);
  const Index low = label % levels, middle = label / levels % levels,
              high = label / (levels * levels);
  return {low, (low + middle) % levels, (low + middle + high) % levels};
}

LeafCues mean_cues(Index label, Index classes) {
  const auto levels = static_cast<double>(leaf_levels(classes));
  const auto [vein, blotch, notch] = levels_of_class(label, classes);
  const double middle = (levels - 1) / 2;
  const double radius = 0.5 / sin_turns(0.5 / levels);  // neighboring corners are 1 apart
  const double turns = static_cast<double>(blotch) / levels;
  return {.vein = static_cast<double>(vein) - middle,
          .blotch_x = radius * cos_turns(turns),
          .blotch_y = radius * sin_turns(turns),
          .notch = static_cast<double>(notch) - middle};
}

double cue_deviation(double difficulty) { return kLargestDeviation * difficulty; }

std::uint64_t leaf_key(const LeavesOptions& options, LeafSplit split, Index label, Index index) {
  const PhiloxBlock block =
      philox(static_cast<std::uint64_t>(options.seed),
             {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(label),
              static_cast<std::uint32_t>(split), 0});
  return std::uint64_t{block[0]} << 32 | block[1];
}

LeafCues cues_of_image(const LeavesOptions& options, LeafSplit split, Index label, Index index) {
  PhiloxStream random(leaf_key(options, split, label, index), /*stream=*/0);
  return shifted(mean_cues(label, options.classes), cue_deviation(options.difficulty), random);
}

LeavesCeiling leaves_ceiling(const LeavesOptions& options) {
  check_leaves(options);
  std::vector<LeafCues> means;
  for (Index label = 0; label < options.classes; ++label) {
    means.push_back(mean_cues(label, options.classes));
  }
  PhiloxStream random(/*seed=*/0);
  const double deviation = cue_deviation(options.difficulty);
  Index right = 0;
  for (Index draw = 0; draw < kCeilingDraws; ++draw) {
    const LeafCues& own = means[static_cast<std::size_t>(draw % options.classes)];
    const LeafCues seen = shifted(own, deviation, random);
    const double distance = square_distance(seen, own);
    right += std::ranges::none_of(
        means, [&](const LeafCues& mean) { return square_distance(seen, mean) < distance; });
  }
  const double share = static_cast<double>(right) / static_cast<double>(kCeilingDraws);
  return {share, std::sqrt(share * (1 - share) / static_cast<double>(kCeilingDraws))};
}

}  // namespace hone::data
