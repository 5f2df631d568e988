// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/sampler.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hone/core/error.h"
#include "hone/train/amp/autocast_guard.h"

#include "tests/support/error_of.h"

namespace hone::paco {
namespace {

using testing::HasSubstr;
using torch::Tensor;
using Cell = std::pair<Index, Index>;

// Suppression as in the method's first implementation.
SamplerOptions fraction_options(Index parts, Index window = 5) {
  return {.parts = parts,
          .window = window,
          .suppression = Suppression::Fraction,
          .fraction = 0.1,
          .allow_repeats = true};
}

Tensor peaks_of(const std::vector<Cell>& cells) {
  const Tensor peaks = at::empty({1, std::ssize(cells), 2}, at::kLong);
  for (Index k = 0; k < std::ssize(cells); ++k) {
    peaks[0][k][0] = cells[k].first;
    peaks[0][k][1] = cells[k].second;
  }
  return peaks;
}

std::vector<Cell> cells_of(const Tensor& peaks, Index image = 0) {
  std::vector<Cell> cells;
  for (Index k = 0; k < peaks.size(1); ++k) {
    cells.emplace_back(peaks[image][k][0].item<Index>(), peaks[image][k][1].item<Index>());
  }
  return cells;
}

Tensor counting_map(Index side) {
  return at::arange(side * side, at::kDouble).view({1, 1, side, side});
}

void expect_values(const Tensor& got, const std::vector<double>& want) {
  ASSERT_EQ(got.numel(), std::ssize(want));
  const Tensor flat = got.detach().flatten();
  for (Index i = 0; i < got.numel(); ++i) EXPECT_NEAR(flat[i].item<double>(), want[i], 1e-12);
}

Index distance(Cell a, Cell b) {
  return std::max(std::abs(a.first - b.first), std::abs(a.second - b.second));
}

TEST(Sampler, takes_the_largest_cells_and_the_means_around_them) {
  const auto by_three = sample_parts(counting_map(4), fraction_options(4, 3));
  EXPECT_EQ(cells_of(by_three.peaks), (std::vector<Cell>{{3, 3}, {3, 2}, {3, 1}, {3, 0}}));
  expect_values(by_three.parts, {12.5, 12, 11, 10.5});
  expect_values(by_three.weight, {11.5});  // values that are not negative are their own norm
  EXPECT_EQ(by_three.exhausted.item<Index>(), 0);
  const auto by_five = sample_parts(counting_map(4), fraction_options(4, 5));
  expect_values(by_five.parts[0][0], {10});
  const auto by_four = sample_parts(counting_map(4), fraction_options(4, 4));
  EXPECT_TRUE(by_four.parts.equal(by_five.parts));
  EXPECT_TRUE(by_four.weight.equal(by_five.weight));
}

TEST(Sampler, takes_the_first_of_equal_cells) {
  for (const double value : {0.0, 1.0, -1.0}) {
    const Tensor map = at::full({1, 3, 4, 4}, value);
    EXPECT_EQ(cells_of(sample_parts(map, fraction_options(4)).peaks),
              (std::vector<Cell>{{0, 0}, {0, 1}, {0, 2}, {0, 3}}));
  }
}

TEST(Sampler, keeps_peaks_apart) {
  at::manual_seed(1);
  const Tensor large = at::rand({8, 6, 20, 20}), small = at::rand({8, 6, 7, 7});
  const auto expect_apart = [](const Tensor& map, const SamplerOptions& options, Index least) {
    const auto sampled = sample_parts(map, options);
    ASSERT_EQ(sampled.exhausted.item<Index>(), 0);
    Index closest = 100;
    for (Index image = 0; image < map.size(0); ++image) {
      const auto cells = cells_of(sampled.peaks, image);
      for (std::size_t a = 0; a < cells.size(); ++a) {
        for (std::size_t b = 0; b < a; ++b) {
          closest = std::min(closest, distance(cells[a], cells[b]));
        }
      }
    }
    EXPECT_GE(closest, least);
  };
  expect_apart(large, fraction_options(8), 3);  // 20 / 10 cells
  expect_apart(large, {.parts = 8, .window = 7}, 4);
  expect_apart(small, {.parts = 3, .window = 3}, 2);
  // A fraction of a side that is not the other: rows apart by 3, columns by 1.
  const Tensor wide = at::zeros({1, 1, 20, 9});
  EXPECT_EQ(cells_of(sample_parts(wide, fraction_options(10)).peaks),
            (std::vector<Cell>{
                {0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {0, 6}, {0, 7}, {0, 8}, {3, 0}}));
}

TEST(Sampler, averages_the_cells_of_a_window_that_the_map_has) {
  const std::vector<Cell> cells{{0, 0}, {0, 1}, {1, 1}, {0, 3}, {1, 3}, {3, 3}, {6, 6}};
  const std::vector<double> counts{9, 12, 16, 15, 20, 25, 9};
  const Tensor peaks = peaks_of(cells);
  for (Index k = 0; k < std::ssize(cells); ++k) {
    const Tensor map = at::rand({1, 2, 7, 7}, at::kDouble).requires_grad_(true);
    parts_at(map, peaks, 5)[0][k][1].backward();
    EXPECT_EQ(map.grad().gt(0).sum().item<double>(), counts[k]);
    for (Index row = 0; row < 7; ++row) {
      for (Index column = 0; column < 7; ++column) {
        const bool inside = distance(cells[k], {row, column}) <= 2;
        EXPECT_EQ(map.grad()[0][1][row][column].item<double>(), inside ? 1 / counts[k] : 0);
        EXPECT_EQ(map.grad()[0][0][row][column].item<double>(), 0);
      }
    }
  }
}

TEST(Sampler, leaves_the_saliency_as_it_is) {
  at::manual_seed(2);
  const Tensor saliency = at::rand({3, 5, 6}), before = saliency.clone();
  for (const auto& search : {find_peaks, composed::find_peaks}) {
    search(saliency, {.parts = 6});
    search(saliency, fraction_options(6));
    EXPECT_TRUE(saliency.equal(before));
  }
}

TEST(Sampler, finds_strong_negative_features_by_their_norm) {
  Tensor map = at::full({1, 2, 5, 5}, 0.5, at::kDouble);
  map.index_put_({0, at::arange(2), 3, 1}, at::tensor({-3.0, -4.0}, at::kDouble));
  const SamplerOptions by_norm{.parts = 1, .window = 3, .saliency = Saliency::Norm};
  const auto sampled = sample_parts(map, by_norm);
  EXPECT_EQ(cells_of(sampled.peaks), (std::vector<Cell>{{3, 1}}));
  expect_values(sampled.parts, {(8 * 0.5 - 3) / 9, (8 * 0.5 - 4) / 9});
  expect_values(sampled.weight, {(8 * std::sqrt(0.5) + 5) / 9});
  EXPECT_EQ(cells_of(sample_parts(map, {.parts = 1, .window = 3}).peaks),
            (std::vector<Cell>{{0, 0}}));
}

TEST(Sampler, takes_suppressed_cells_when_no_other_is_left) {
  // The first peak suppresses all.
  const Tensor saliency = at::tensor({3.0, 1.0, 4.0, 1.5, 9.0, 2.0, 6.0, 5.0, 3.5}).view({1, 3, 3});
  for (const auto& search : {find_peaks, composed::find_peaks}) {
    SamplerOptions options{.parts = 5, .window = 5};
    Peaks peaks = search(saliency, options);
    EXPECT_EQ(cells_of(peaks.cells), (std::vector<Cell>{{1, 1}, {2, 0}, {2, 1}, {0, 2}, {2, 2}}));
    EXPECT_EQ(peaks.exhausted.item<Index>(), 4);
    options.allow_repeats = true;
    peaks = search(saliency, options);
    EXPECT_EQ(cells_of(peaks.cells), (std::vector<Cell>{{1, 1}, {0, 0}, {0, 0}, {0, 0}, {0, 0}}));
    EXPECT_EQ(peaks.exhausted.item<Index>(), 4);
    options = {.parts = 9, .window = 3};
    peaks = search(saliency, options);
    auto cells = cells_of(peaks.cells);
    std::sort(cells.begin(), cells.end());
    EXPECT_EQ(std::unique(cells.begin(), cells.end()), cells.end()) << "all cells, once each";
  }
}

// The definition in scalar loops, with the gradient of Σ parts·by_parts + Σ weight·by_weight.
struct Oracle {
  std::vector<Cell> peaks;
  Tensor parts, weight, grad;
};
struct OracleInput {
  Tensor map, by_parts, by_weight;  // [C, H, W], [K, C], []
  SamplerOptions options;
};

std::vector<double> attention_of(const Tensor& map) {
  const Index channels = map.size(0), height = map.size(1), width = map.size(2);
  const auto f = map.accessor<double, 3>();
  std::vector<double> by_channel(channels), by_cell(height * width), saliency(height * width);
  double channel_sum = 0, cell_sum = 0;
  for (Index c = 0; c < channels; ++c) {
    double mean = 0;
    for (Index i = 0; i < height * width; ++i) mean += f[c][i / width][i % width];
    channel_sum += by_channel[c] = std::exp(mean / static_cast<double>(height * width));
  }
  for (Index i = 0; i < height * width; ++i) {
    double mean = 0;
    for (Index c = 0; c < channels; ++c) mean += f[c][i / width][i % width];
    cell_sum += by_cell[i] = std::exp(mean / static_cast<double>(channels));
  }
  for (Index i = 0; i < height * width; ++i) {
    for (Index c = 0; c < channels; ++c) {
      saliency[i] += by_channel[c] / channel_sum * f[c][i / width][i % width];
    }
    saliency[i] *= by_cell[i] / cell_sum;
  }
  return saliency;
}

std::vector<double> norm_of(const Tensor& map) {
  const auto f = map.accessor<double, 3>();
  std::vector<double> norm(map.size(1) * map.size(2));
  for (Index i = 0; i < std::ssize(norm); ++i) {
    double squares = 0;
    for (Index c = 0; c < map.size(0); ++c) {
      squares += std::pow(f[c][i / map.size(2)][i % map.size(2)], 2);
    }
    norm[i] = std::sqrt(squares);
  }
  return norm;
}

Oracle by_loops(const OracleInput& in) {
  const Index channels = in.map.size(0), height = in.map.size(1), width = in.map.size(2);
  const Index parts = in.options.parts, half = in.options.window / 2;
  const auto f = in.map.accessor<double, 3>();
  const std::vector<double> norm = norm_of(in.map);
  const auto saliency = in.options.saliency == Saliency::Norm ? norm : attention_of(in.map);
  Oracle out{{},
             at::zeros({parts, channels}, at::kDouble),
             at::zeros({}, at::kDouble),
             at::zeros_like(in.map)};
  const auto share_of = [&](double sum, Index count) { return sum / static_cast<double>(count); };
  double weight = 0;
  for (Index k = 0; k < parts; ++k) {
    Cell best{-1, -1};
    for (Index i = 0; i < height * width; ++i) {
      const Cell cell{i / width, i % width};
      const bool open = std::none_of(out.peaks.begin(), out.peaks.end(),
                                     [&](Cell peak) { return distance(peak, cell) <= half; });
      if (open && (best.first < 0 || saliency[i] > saliency[best.first * width + best.second])) {
        best = cell;
      }
    }
    out.peaks.push_back(best);
    std::vector<Cell> window;
    for (Index i = 0; i < height * width; ++i) {
      if (distance(best, {i / width, i % width}) <= half) window.emplace_back(i / width, i % width);
    }
    const Index count = std::ssize(window);
    for (const auto& [row, column] : window) {
      const double cell_norm = norm[row * width + column];
      weight += share_of(cell_norm, count * parts);
      for (Index c = 0; c < channels; ++c) {
        out.parts[k][c] += share_of(f[c][row][column], count);
        out.grad[c][row][column] +=
            share_of(in.by_parts[k][c].item<double>(), count) +
            share_of(in.by_weight.item<double>() * f[c][row][column] / cell_norm, count * parts);
      }
    }
  }
  out.weight.fill_(weight);
  return out;
}

double worst_difference(const Tensor& got, const Tensor& want) {
  return (got - want).abs().max().item<double>();
}

TEST(Sampler, equals_scalar_loops) {
  at::manual_seed(3);
  const Index batch = 4, channels = 5, parts = 3;
  for (const Saliency saliency : {Saliency::Attention, Saliency::Norm}) {
    for (const auto& [height, width] : {Cell{7, 7}, Cell{9, 6}, Cell{16, 11}}) {
      const SamplerOptions options{.parts = parts, .window = 3, .saliency = saliency};
      const Tensor map =
          at::randn({batch, channels, height, width}, at::kDouble).requires_grad_(true);
      const Tensor by_parts = at::randn({batch, parts, channels}, at::kDouble);
      const Tensor by_weight = at::randn({batch}, at::kDouble);
      const auto got = sample_parts(map, options);
      ((got.parts * by_parts).sum() + (got.weight * by_weight).sum()).backward();
      for (Index image = 0; image < batch; ++image) {
        const Oracle want =
            by_loops({map.detach()[image], by_parts[image], by_weight[image], options});
        EXPECT_EQ(cells_of(got.peaks, image), want.peaks);
        EXPECT_LE(worst_difference(got.parts.detach()[image], want.parts), 1e-14);
        EXPECT_LE(worst_difference(got.weight.detach()[image], want.weight), 1e-14);
        EXPECT_LE(worst_difference(map.grad()[image], want.grad), 1e-14);
      }
      EXPECT_TRUE(parts_at(map, got.peaks, options.window).equal(got.parts));
    }
  }
}

TEST(Sampler, takes_maps_in_any_memory_order) {
  at::manual_seed(4);
  const Tensor dense = at::rand({3, 6, 8, 9}, at::kDouble), spread = at::rand({3, 12, 8, 18});
  const Tensor strided = spread.to(at::kDouble).slice(1, 0, 12, 2).slice(3, 0, 18, 2).copy_(dense);
  const std::vector<Tensor> maps{dense.clone(), strided,
                                 dense.contiguous(at::MemoryFormat::ChannelsLast),
                                 dense.transpose(2, 3).contiguous().transpose(2, 3)};
  const Tensor by_parts = at::randn({3, 4, 6}, at::kDouble);
  const auto run = [&](const Tensor& map) {
    map.requires_grad_(true);
    const auto sampled = sample_parts(map, {.window = 3});
    const Tensor loss = (sampled.parts * by_parts).sum() + sampled.weight.sum();
    return std::tuple(sampled, torch::autograd::grad({loss}, {map})[0]);
  };
  const auto [want, want_grad] = run(maps[0]);
  for (std::size_t i = 1; i < maps.size(); ++i) {
    const Tensor leaf = maps[i].detach();
    ASSERT_TRUE(leaf.equal(dense));
    const auto [got, got_grad] = run(leaf);
    EXPECT_TRUE(got.peaks.equal(want.peaks)) << i;
    EXPECT_LE(worst_difference(got.parts, want.parts), 1e-15) << i;
    EXPECT_LE(worst_difference(got.weight, want.weight), 1e-15) << i;
    EXPECT_LE(worst_difference(got_grad, want_grad), 1e-15) << i;
  }
}

TEST(Sampler, computes_in_fp32_under_autocast) {
  at::manual_seed(5);
  const Tensor lowered = at::rand({4, 33, 7, 7}).to(at::kBFloat16).requires_grad_(true);
  const Tensor wide = lowered.detach().to(at::kFloat).requires_grad_(true);
  for (const Saliency saliency : {Saliency::Attention, Saliency::Norm}) {
    const SamplerOptions options{.saliency = saliency};
    const auto want = sample_parts(wide, options);
    const amp::AutocastGuard autocast(at::kCPU, at::kBFloat16);
    for (const Tensor& map : {lowered, wide}) {
      const auto got = sample_parts(map, options);
      EXPECT_EQ(got.parts.scalar_type(), at::kFloat);
      EXPECT_TRUE(got.peaks.equal(want.peaks));
      EXPECT_TRUE(got.parts.equal(want.parts));
      EXPECT_TRUE(got.weight.equal(want.weight));
      EXPECT_TRUE(parts_at(map, got.peaks, options.window).equal(want.parts));
    }
  }
  sample_parts(lowered, {}).parts.sum().backward();
  sample_parts(wide, {}).parts.sum().backward();
  EXPECT_EQ(lowered.grad().scalar_type(), at::kBFloat16);
  EXPECT_TRUE(lowered.grad().equal(wide.grad().to(at::kBFloat16)));
}

TEST(Sampler, finds_the_same_peaks_by_loops_and_by_operators) {
  at::manual_seed(6);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 60; ++round) {
    Tensor saliency = at::randint(0, 5, {3, 2 + round % 5, 2 + round % 3}, at::kDouble);  // ties
    if (round % 4 == 0) saliency = at::rand({3, 9, 8});
    if (round % 5 == 0) {
      saliency[0][1][1] = std::numeric_limits<double>::quiet_NaN();
      saliency[1][0][1] = -kInfinity;
      saliency[2].fill_(kInfinity);
    }
    const SamplerOptions options{
        .parts = 4,
        .window = 1 + round % 7,
        .suppression = round % 2 == 0 ? Suppression::Window : Suppression::Fraction,
        .fraction = 0.1 * (round % 11),
        .allow_repeats = round % 3 == 0};
    const Peaks loops = find_peaks(saliency, options);
    const Peaks operators = composed::find_peaks(saliency, options);
    EXPECT_TRUE(loops.cells.equal(operators.cells)) << saliency << loops.cells << operators.cells;
    EXPECT_EQ(loops.exhausted.item<Index>(), operators.exhausted.item<Index>());
  }
}

TEST(Sampler, has_finite_gradients_on_a_map_of_zeros) {
  const Tensor map = at::zeros({2, 4, 7, 7}).requires_grad_(true);
  for (const Saliency saliency : {Saliency::Attention, Saliency::Norm}) {
    map.mutable_grad() = Tensor();
    const auto sampled = sample_parts(map, {.parts = 4, .saliency = saliency});
    expect_values(sampled.weight, {0, 0});
    sampled.weight.sum().backward();
    EXPECT_EQ(map.grad().abs().max().item<double>(), 0);
    EXPECT_FALSE(sampled.peaks.requires_grad());
  }
}

TEST(Sampler, does_not_depend_on_threads) {
  at::manual_seed(7);
  const Tensor map = at::rand({16, 96, 9, 9}).requires_grad_(true);
  const int before = at::get_num_threads();
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    const auto sampled = sample_parts(map, {});
    const Tensor loss = sampled.parts.square().sum({1, 2}).dot(sampled.weight);
    return std::pair(sampled, torch::autograd::grad({loss}, {map})[0]);
  };
  const auto [one, one_grad] = run(1);
  const auto [seven, seven_grad] = run(7);
  at::set_num_threads(before);
  EXPECT_TRUE(one.peaks.equal(seven.peaks));
  EXPECT_TRUE(one.parts.equal(seven.parts));
  EXPECT_TRUE(one.weight.equal(seven.weight));
  EXPECT_TRUE(one_grad.equal(seven_grad));
}

TEST(Sampler, takes_a_batch_without_images) {
  const auto sampled = sample_parts(at::zeros({0, 3, 7, 7}), {});
  EXPECT_EQ(sampled.parts.sizes(), (std::vector<Index>{0, 4, 3}));
  EXPECT_EQ(sampled.peaks.sizes(), (std::vector<Index>{0, 4, 2}));
  EXPECT_EQ(sampled.weight.sizes(), (std::vector<Index>{0}));
  EXPECT_EQ(composed::find_peaks(at::zeros({0, 7, 7}), {}).cells.size(0), 0);
}

TEST(Sampler, refuses_other_maps) {
  const auto refuse = [](const Tensor& map, const SamplerOptions& options,
                         const std::string& message) {
    EXPECT_THAT(hone::test::refusal([&] { sample_parts(map, options); }),
                HasSubstr("[sample_parts] " + message));
  };
  const Tensor map = at::ones({2, 3, 4, 4});
  refuse({}, {}, "The map is an undefined tensor.");
  refuse(at::ones({2, 49, 3}), {}, "expected 4 dimensions, got 3");
  refuse(map.to(at::kLong), {}, "expected a floating-point type, got Long");
  refuse(at::ones({2, 0, 4, 4}), {}, "expected a nonempty map, got [2, 0, 4, 4]");
  refuse(at::ones({2, 3, 3, 1}), {}, "expected at least 4 cells for as many parts, got 3 x 1");
  refuse(map, {.parts = 0}, "expected at least one part, got 0");
  refuse(map, {.window = 0}, "expected a window of at least 1, got 0");
  refuse(map, {.fraction = 1.5}, "expected a fraction in [0, 1], got 1.5");
  refuse(map, {.fraction = std::nan("")}, "expected a fraction in [0, 1], got nan");
  sample_parts(map, {.window = std::numeric_limits<Index>::max()});
}

TEST(Sampler, refuses_other_peaks) {
  const Tensor map = at::ones({1, 3, 4, 5});
  const auto refuse = [&](const Tensor& peaks, const std::string& message) {
    EXPECT_THAT(hone::test::refusal([&] { parts_at(map, peaks, 3); }),
                HasSubstr("[parts_at] " + message));
  };
  refuse({}, "expected int64 peaks, got an undefined tensor");
  refuse(at::zeros({1, 2, 2}), "expected int64 peaks, got Float");
  refuse(at::zeros({1, 2, 3}, at::kLong), "expected peaks [1, parts, 2], got [1, 2, 3]");
  refuse(at::zeros({2, 2, 2}, at::kLong), "expected peaks [1, parts, 2], got [2, 2, 2]");
  refuse(peaks_of({{4, 0}}), "expected peaks in a map of 4 x 5, got one outside of it");
  refuse(peaks_of({{0, -1}}), "expected peaks in a map of 4 x 5, got one outside of it");
  EXPECT_EQ(parts_at(map, peaks_of({{3, 4}}), 3).sizes(), (std::vector<Index>{1, 1, 3}));
}

}  // namespace
}  // namespace hone::paco
