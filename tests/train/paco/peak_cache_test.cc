// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/peak_cache.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "hone/core/philox.h"
#include "hone/train/paco/model.h"
#include "tests/support/error_of.h"

namespace hone::paco {
namespace {

using data::View;
using data::ViewGeometry;
using hone::test::error_of;
using testing::HasSubstr;
using torch::Tensor;
using Cell = std::pair<Index, Index>;
using Cells = std::vector<Cell>;

constexpr Index kParts = 3;

Tensor tensor_of(const Cells& cells) {
  const Tensor out = at::empty({1, std::ssize(cells), 2}, at::kLong);
  for (Index k = 0; k < std::ssize(cells); ++k) {
    out[0][k][0] = cells[k].first;
    out[0][k][1] = cells[k].second;
  }
  return out;
}

// ---- views of an image whose pixel in row r and column c has the color (r, c, 7)

constexpr Index kSource = 21, kSide = 15;

View whole() {
  data::Image image{kSource, kSource, {}};
  for (Index y = 0; y < kSource; ++y) {
    for (Index x = 0; x < kSource; ++x) {
      for (const Index value : {y, x, Index{7}}) {
        image.pixels.push_back(static_cast<std::uint8_t>(value));
      }
    }
  }
  return data::whole_view(std::move(image));
}

Index draw(PhiloxStream& random, Index bound) {
  return static_cast<Index>(random.below(static_cast<std::uint32_t>(bound)));
}

View random_view(PhiloxStream& random) {
  View view = whole();
  data::crop(view, {draw(random, 9) - 1, draw(random, 9) - 1, kSide, kSide});
  if (draw(random, 2) == 0) data::flip(view);
  if (draw(random, 4) == 0) {
    data::erase(view, {draw(random, kSide - 3), draw(random, kSide - 3), 4, 4}, {255, 255, 255});
  }
  if (draw(random, 2) == 0) {
    const Index top = 3 * draw(random, 2), left = 3 * draw(random, 5);
    data::swap_cells(view, 3,
                     {{.top = {top, top + 6}, .left = {left, 3 * draw(random, 5)}},
                      {.top = {12, 12}, .left = {0, 9}}});
  }
  return view;
}

using Color = std::array<std::uint8_t, 3>;
Color color_at(const View& view, Index row, Index column) {
  const auto* const pixel = view.image.pixels.data() + 3 * (row * view.image.width + column);
  return {pixel[0], pixel[1], pixel[2]};
}

// The cells of `map` with the centers of the pixels of these colors; nothing if one is absent or
// two are in one cell.
std::optional<Cells> cells_with(const View& view, const std::vector<Color>& colors, MapSize map) {
  Cells out;
  for (const Color& color : colors) {
    for (Index at = 0; at < kSide * kSide; ++at) {
      const Index row = at / kSide, column = at % kSide;
      if (color_at(view, row, column) != color) continue;
      out.emplace_back((2 * row + 1) * map.rows / (2 * kSide),
                       (2 * column + 1) * map.columns / (2 * kSide));
    }
  }
  const bool is_whole = out.size() == colors.size();
  if (!is_whole || std::set(out.begin(), out.end()).size() < out.size()) return std::nullopt;
  return out;
}

// Peaks of view 1 of which the view shows the image in the middle, and that pixel's colors. Cells
// have 3 x 3 pixels, so that it is in none of their corners.
Cells draw_peaks(PhiloxStream& random, const View& view, std::vector<Color>& colors) {
  Cells out;
  while (std::ssize(out) < kParts) {
    const Cell cell{draw(random, 5), draw(random, 5)};
    const Color color = color_at(view, 3 * cell.first + 1, 3 * cell.second + 1);
    if (color[2] != 7 || std::ranges::find(out, cell) != out.end()) continue;
    out.push_back(cell);
    colors.push_back(color);
  }
  return out;
}

TEST(PeakCache, finds_the_cells_that_show_the_same_pixels) {
  PhiloxStream random(5);
  int found = 0, lost = 0;
  for (int round = 0; round < 1000; ++round) {
    const View first = random_view(random), one = random_view(random), two = random_view(random);
    std::vector<Color> colors;
    const Tensor peaks = tensor_of(draw_peaks(random, first, colors));
    PeakCache cache(1, kParts, 2);
    const ShownImages before{{0}, {first.geometry, two.geometry}};
    cache->end_visit(before, {5, 5}, cache->recall(before, {5, 5}), peaks);
    const MapSize map{round % 2 == 0 ? 5 : 4, 3};
    const KnownPeaks known = cache->recall({{0}, {one.geometry, two.geometry}}, map);
    const auto want1 = cells_with(one, colors, map), want2 = cells_with(two, colors, map);
    ASSERT_EQ(known.is_known.item<bool>(), want1 && want2) << round;
    if (want1 && want2) {
      ++found;
      ASSERT_TRUE(known.cells1.equal(tensor_of(*want1))) << round;
      ASSERT_TRUE(known.cells2.equal(tensor_of(*want2))) << round;
    } else {
      ++lost;
      ASSERT_FALSE(known.cells1.any().item<bool>() || known.cells2.any().item<bool>());
    }
  }
  EXPECT_GT(found, 30);
  EXPECT_GT(lost, 30);
}

// ---- visits

constexpr MapSize kMap{4, 4};  // of views of 12 x 12 pixels

ViewGeometry plain(Index side = 12) {
  ViewGeometry out;
  out.height = out.width = side;
  return out;
}
ViewGeometry erased(Index side) {
  ViewGeometry out = plain();
  out.erased = {0, 0, side, side};
  return out;
}
ViewGeometry moved(double by) {
  ViewGeometry out = plain();
  out.to_source.x0 = by;
  out.from_source.x0 = -by;
  return out;
}

KnownPeaks visit(PeakCache& cache, const ShownImages& shown, const Tensor& peaks) {
  const KnownPeaks known = cache->recall(shown, kMap);
  cache->end_visit(shown, kMap, known, peaks);
  return known;
}
KnownPeaks visit(PeakCache& cache, const ViewGeometry& one, const ViewGeometry& two,
                 const Cells& peaks) {
  return visit(cache, {{0}, {one, two}}, tensor_of(peaks));
}
bool is_known(const KnownPeaks& peaks) { return peaks.is_known.item<bool>(); }

TEST(PeakCache, keeps_peaks_for_their_visits_also_where_a_view_hides_them) {
  PeakCache cache(1, 2, 3);
  const Cells kept{{0, 0}, {2, 3}}, other{{1, 1}, {1, 2}};
  for (int time = 0; time < 2; ++time) {
    EXPECT_FALSE(is_known(visit(cache, plain(), plain(), kept)));
    EXPECT_FALSE(is_known(visit(cache, plain(), erased(2), other)));
    const KnownPeaks third = visit(cache, plain(), plain(), kept);
    EXPECT_TRUE(is_known(third));
    EXPECT_TRUE(third.cells1.equal(tensor_of(kept)));
    EXPECT_TRUE(third.cells2.equal(tensor_of(kept)));
  }
  EXPECT_EQ(cache->report(), (Json{{"refresh_every", 3}, {"detections", 4}, {"reused", 2}}));
}

TEST(PeakCache, does_not_know_peaks_that_a_view_does_not_show) {
  const auto known = [](const ViewGeometry& one, const ViewGeometry& two) {
    PeakCache cache(1, 2, 2);
    visit(cache, plain(), plain(), {{0, 0}, {2, 3}});  // 1.5 and 10.5 from the left
    return is_known(visit(cache, one, two, {{0, 0}, {2, 3}}));
  };
  EXPECT_TRUE(known(plain(), erased(1)));
  EXPECT_FALSE(known(plain(), erased(2)));
  EXPECT_FALSE(known(erased(2), plain()));
  EXPECT_TRUE(known(moved(1.5), moved(-1.25)));
  EXPECT_FALSE(known(moved(1.75), plain()));
  EXPECT_FALSE(known(plain(), moved(-1.5)));  // at the edge, which is outside
}

TEST(PeakCache, counts_an_image_that_is_in_a_batch_twice_once) {
  PeakCache cache(5, 2, 3);
  const ShownImages twice{{4, 4}, std::vector<ViewGeometry>(4, plain())};
  const Tensor peaks = tensor_of({{0, 0}, {2, 3}}).repeat({2, 1, 1});
  for (const bool expected : {false, true, true, false}) {
    EXPECT_EQ(visit(cache, twice, peaks).is_known.all().item<bool>(), expected);
  }
  EXPECT_FALSE(cache->ages.narrow(0, 0, 4).any().item<bool>());
}

TEST(PeakCache, refuses_by_name) {
  PeakCache cache(3, 2, 2);
  EXPECT_THAT(error_of([&] {
                cache->recall({{3}, {plain(), plain()}}, kMap);
              }),
              HasSubstr("[PeakCache] expected images below 3, got 3"));
  EXPECT_THAT(error_of([&] {
                cache->recall({{-1}, {plain(), plain()}}, kMap);
              }),
              HasSubstr("got -1"));
  EXPECT_THAT(error_of([&] {
                cache->recall({{0}, {plain()}}, kMap);
              }),
              HasSubstr("the geometry of 2 views, got 1"));
  EXPECT_THAT(error_of([&] { visit(cache, plain(), plain(), {{0, 0}}); }), HasSubstr("[1, 2, 2]"));
  EXPECT_THAT(error_of([&] { PeakCache(0, 2, 2); }), HasSubstr("at least one image"));
  EXPECT_THAT(error_of([&] { PeakCache(1, 2, 0); }), HasSubstr("refresh_every above 0"));
}

// ---- where they are used

TEST(Sampler, searches_only_the_maps_without_given_peaks) {
  at::manual_seed(3);
  const Tensor map = at::rand({4, 5, 6, 6}).requires_grad_();
  const Tensor cells = at::zeros({4, 2, 2}, at::kLong), is_given = at::tensor({0, 1, 1, 0}) > 0;
  cells.select(1, 1).fill_(5);
  for (const Saliency saliency : {Saliency::Attention, Saliency::Norm}) {
    const SamplerOptions options{.parts = 2, .window = 11, .saliency = saliency};
    const SampledParts found = sample_parts(map, options),
                       mixed = sample_parts(map, options, {cells, is_given});
    const Tensor rows = is_given.view({4, 1, 1});
    EXPECT_TRUE(mixed.peaks.equal(at::where(rows, cells, found.peaks)));
    EXPECT_TRUE(mixed.parts.equal(parts_at(map, mixed.peaks, 11)));
    EXPECT_EQ(found.exhausted.item<Index>(), 4) << "the second peak of each map";
    EXPECT_EQ(mixed.exhausted.item<Index>(), 2);
    const SampledParts all = sample_parts(map, options, {cells, at::ones({4}, at::kBool)});
    EXPECT_TRUE(all.peaks.equal(cells));
    EXPECT_EQ(all.exhausted.item<Index>(), 0);
  }
  const auto refused = [&](const Tensor& peaks, const Tensor& mask) {
    return error_of([&] { sample_parts(map, {.parts = 2}, {peaks, mask}); });
  };
  EXPECT_THAT(refused(cells + 1, is_given), HasSubstr("peaks in a map of 6 x 6"));
  EXPECT_THAT(refused(cells.repeat({1, 2, 1}), is_given), HasSubstr("2 given peaks of an image"));
  EXPECT_THAT(refused(cells, is_given.narrow(0, 0, 3)), HasSubstr("is_given of bool [4]"));
  EXPECT_THAT(refused(cells, {}), HasSubstr("got an undefined tensor"));
}

TEST(PacoLoss, matches_paired_parts_in_their_order) {
  at::manual_seed(4);
  const Tensor z1 = at::randn({3, 4, 6}, at::kDouble), z2 = z1.flip(1);
  const Tensor targets = at::arange(3, at::kLong), is_paired = at::tensor({0, 1, 0}) > 0;
  for (const MatchMetric metric : {MatchMetric::Cosine, MatchMetric::Mahalanobis}) {
    PacoLossOptions options{.classes = 3, .dim = 6};
    options.match = {metric, 0};
    PacoLoss loss(options);
    const Tensor order = at::arange(4, at::kLong);
    EXPECT_TRUE(loss->forward(z1, z2, targets).matching[1].equal(order.flip(0)));
    const PacoLossOutput out = loss->forward(z1, z2, targets, {}, is_paired);
    EXPECT_TRUE(out.matching.equal(at::stack({order.flip(0), order, order.flip(0)})));
    const PartMetric measure = part_metric(z1, z2, options.metric);
    EXPECT_EQ(out.pac.item<double>(),
              part_contrast(measure, out.matching, targets, options).loss.item<double>());
    EXPECT_THAT(error_of([&] { loss->forward(z1, z2, targets, {}, targets); }),
                HasSubstr("is_paired of bool [3]"));
  }
}

// In evaluation mode, so that an output depends on its own image only.
struct FrozenModel {
  explicit FrozenModel(Index refresh_every) {
    PacoModelOptions options{.classes = 3, .dim = 8};
    options.backbone = {
        .name = "resnet20", .width = 4, .channels = 3, .height = 32, .image_width = 32};
    options.refresh_every = refresh_every;
    options.images = 6;
    model = PacoModel(options);
    model->eval();
  }
  PacoOutput visit(const Tensor& one, const Tensor& two) {
    const torch::NoGradGuard no_grad;
    const ShownImages shown{{5, 0, 2, 3}, std::vector<ViewGeometry>(8, plain(32))};
    return model->forward(one, two, at::tensor({0, 1, 2, 0}, at::kLong), shown);
  }

  PacoModel model{nullptr};
};

TEST(PacoModel, with_kept_peaks_finds_those_of_an_image_that_stays_as_it_is) {
  at::manual_seed(6);
  const Tensor images = at::randn({4, 3, 32, 32});
  FrozenModel every(1), second(2);
  for (int time = 0; time < 6; ++time) {
    const PacoOutput want = every.visit(images, images), got = second.visit(images, images);
    EXPECT_TRUE(got.view1.peaks.equal(want.view1.peaks));
    EXPECT_TRUE(got.view2.peaks.equal(want.view2.peaks));
    EXPECT_EQ(got.total.item<double>(), want.total.item<double>());
  }
  EXPECT_EQ(second.model->optimization_info().at("peak_cache"),
            (Json{{"refresh_every", 2}, {"detections", 12}, {"reused", 12}}));
  EXPECT_TRUE(every.model->optimization_info().at("peak_cache").is_null());
  EXPECT_FALSE(every.model->named_buffers().contains("peaks.points"));
}

TEST(PacoModel, with_kept_peaks_takes_both_views_at_those_of_the_first) {
  at::manual_seed(7);
  const Tensor one = at::randn({4, 3, 32, 32}), two = at::randn({4, 3, 32, 32});
  FrozenModel every(1), second(2);
  const PacoOutput plain = every.visit(one, two);
  const PacoOutput found = second.visit(one, two);
  EXPECT_TRUE(found.parts.matching.equal(plain.parts.matching));
  EXPECT_EQ(found.total.item<double>(), plain.total.item<double>());
  const PacoOutput kept = second.visit(two, one);
  EXPECT_TRUE(kept.view1.peaks.equal(found.view1.peaks));
  EXPECT_TRUE(kept.view2.peaks.equal(found.view1.peaks));
  EXPECT_FALSE(found.view2.peaks.equal(found.view1.peaks));
  const Tensor order = at::arange(4, at::kLong).expand({4, 4});
  EXPECT_TRUE(kept.parts.matching.equal(order));
  EXPECT_FALSE(plain.parts.matching.equal(order));
}

TEST(PacoModel, keeps_nothing_of_images_that_it_does_not_know) {
  at::manual_seed(8);
  FrozenModel second(2);
  const Tensor images = at::randn({4, 3, 32, 32});
  second.model->forward(images, images, at::tensor({0, 1, 2, 0}, at::kLong));
  for (const Tensor& state :
       {second.model->peaks->points, second.model->peaks->ages, second.model->peaks->counts}) {
    EXPECT_FALSE(state.any().item<bool>());
  }
}

}  // namespace
}  // namespace hone::paco
