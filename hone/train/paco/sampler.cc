// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/train/exact_scope.h"

namespace hone::paco {
namespace {

using torch::Tensor;

void check_map(const char* op, const Tensor& map, Index rank) {
  HONE_REQUIRE(map.defined(), op, "The map is an undefined tensor.");
  HONE_CHECK(map.dim() == rank, op, concat(rank, " dimensions"), map.dim());
  HONE_CHECK(map.is_floating_point(), op, "a floating-point type", at::toString(map.scalar_type()));
  HONE_CHECK(map.size(1) > 0 && map.size(-2) > 0 && map.size(-1) > 0, op, "a nonempty map",
             c10::str(map.sizes()));
}

void check_window(const char* op, Index window) {
  HONE_CHECK(window >= 1, op, "a window of at least 1", window);
}

void check_sampler(const char* op, const Tensor& map, const SamplerOptions& options) {
  check_window(op, options.window);
  HONE_CHECK(options.parts >= 1, op, "at least one part", options.parts);
  HONE_CHECK(options.fraction >= 0 && options.fraction <= 1, op, "a fraction in [0, 1]",
             options.fraction);
  HONE_CHECK(map.size(-2) * map.size(-1) >= options.parts, op,
             concat("at least ", options.parts, " cells for as many parts"),
             concat(map.size(-2), " x ", map.size(-1)));
}

// How many rows and columns next to a cell belong to it.
struct Reach {
  Index rows = 0, columns = 0;
};

Reach suppression_reach(const SamplerOptions& options, Index height, Index width) {
  if (options.suppression == Suppression::Window) return {options.window / 2, options.window / 2};
  const auto share = [&](Index side) {
    return static_cast<Index>(std::floor(options.fraction * static_cast<double>(side)));
  };
  return {share(height), share(width)};
}

// Whether a cell of the map is within reach of each of cells [B, K, 2]: bool [B, K, H·W].
Tensor within_reach(const Tensor& cells, Index height, Index width, const Reach& reach) {
  const auto near = [&](Index axis, Index side, Index most) {
    const Tensor offset = at::arange(side, cells.options()) - cells.narrow(2, axis, 1);
    return offset.abs_().le(most);
  };
  return near(0, height, reach.rows)
      .unsqueeze(3)
      .logical_and(near(1, width, reach.columns).unsqueeze(2))
      .flatten(2);
}

// The means of map [B, C, H, W] over the marked cells, [B, K, H·W]: [B, K, C]. The operand whose
// rows are contiguous goes first: on a CPU the other order takes 2 to 8 times as long.
Tensor marked_means(const Tensor& map, const Tensor& marked) {
  const Tensor cells = map.flatten(2), marks = marked.to(map.scalar_type());
  const Tensor sums = cells.stride(1) == 1 ? at::bmm(marks, cells.transpose(1, 2))
                                           : at::bmm(cells, marks.transpose(1, 2)).transpose(1, 2);
  return sums / marks.sum(2, /*keepdim=*/true);
}

// The norm over channels, [B, 1, H, W], with a gradient of 0 where it is 0. (LibTorch's norm takes
// 10 to 40 times as long over a dimension that is not the last in memory.)
Tensor channel_norm(const Tensor& map) {
  const Tensor squares = map.square().sum(1, /*keepdim=*/true), positive = squares.gt(0);
  return at::where(positive, squares, 1).sqrt() * positive;
}

Tensor attention_saliency(const Tensor& map) {
  const Tensor cells = map.flatten(2);
  const Tensor attention = cells.mean(2).softmax(1).unsqueeze(1);  // [B, 1, C]
  const Tensor share = cells.mean(1).softmax(1);                   // [B, H·W]
  return (at::bmm(attention, cells).squeeze(1) * share)
      .view({map.size(0), map.size(2), map.size(3)});
}

enum class CellState : std::uint8_t { Open, Suppressed, Peak };

// The largest score below a state, -1 if none is. The first of equal ones.
template <class Score>
Index best_cell(const Score* scores, const std::vector<CellState>& states, CellState below) {
  Index best = -1;
  for (Index i = 0; i < std::ssize(states); ++i) {
    if (states[i] < below && (best < 0 || scores[i] > scores[best])) best = i;
  }
  return best;
}

// Returns how many peaks were taken from suppressed cells.
template <class Score>
Index search_map(const Score* scores, Index height, Index width, const SamplerOptions& options,
                 std::int64_t* cells) {
  const Reach reach = suppression_reach(options, height, width);
  std::vector<CellState> states(static_cast<std::size_t>(height * width), CellState::Open);
  Index exhausted = 0;
  for (Index k = 0; k < options.parts; ++k) {
    Index best = best_cell(scores, states, CellState::Suppressed);
    if (best < 0) {
      ++exhausted;
      best = options.allow_repeats ? 0 : best_cell(scores, states, CellState::Peak);
    }
    const Index row = best / width, column = best % width;
    const Index first = std::max<Index>(0, column - reach.columns);
    const Index last = std::min(width - 1, column + reach.columns);
    for (Index i = std::max<Index>(0, row - reach.rows);
         i <= std::min(height - 1, row + reach.rows); ++i) {
      for (Index j = first; j <= last; ++j) {
        CellState& state = states[i * width + j];
        state = std::max(state, CellState::Suppressed);
      }
    }
    states[best] = CellState::Peak;
    cells[2 * k] = row, cells[2 * k + 1] = column;
  }
  return exhausted;
}

template <class Score>
Peaks search_maps(const Tensor& scores, const SamplerOptions& options) {
  const Index batch = scores.size(0), height = scores.size(1), width = scores.size(2);
  const Tensor cells = at::empty({batch, options.parts, 2}, at::kLong);
  Index exhausted = 0;
  for (Index image = 0; image < batch; ++image) {
    exhausted += search_map(scores.const_data_ptr<Score>() + image * height * width, height, width,
                            options, cells.data_ptr<std::int64_t>() + image * options.parts * 2);
  }
  return {cells, at::scalar_tensor(exhausted, at::kLong)};
}

void check_peaks(const char* op, const Tensor& map, const Tensor& peaks) {
  HONE_CHECK(peaks.defined() && peaks.scalar_type() == at::kLong, op, "int64 peaks",
             peaks.defined() ? at::toString(peaks.scalar_type()) : "an undefined tensor");
  HONE_CHECK(peaks.dim() == 3 && peaks.size(0) == map.size(0) && peaks.size(2) == 2, op,
             concat("peaks [", map.size(0), ", parts, 2]"), c10::str(peaks.sizes()));
  HONE_CHECK(peaks.device() == map.device(), op, concat("peaks on ", map.device().str()),
             peaks.device().str());
  if (!peaks.is_cpu()) return;
  const Index height = map.size(2), width = map.size(3);
  const Tensor sides = at::tensor({height, width}, at::kLong);
  HONE_CHECK(peaks.ge(0).logical_and(peaks.lt(sides)).all().item<bool>(), op,
             concat("peaks in a map of ", height, " x ", width), "one outside of it");
}

void check_given(const char* op, const Tensor& map, const GivenPeaks& given, Index parts) {
  check_peaks(op, map, given.cells);
  HONE_CHECK(given.cells.size(1) == parts, op, concat(parts, " given peaks of an image"),
             given.cells.size(1));
  const Tensor& mask = given.is_given;
  HONE_CHECK(mask.defined() && mask.scalar_type() == at::kBool && mask.dim() == 1 &&
                 mask.size(0) == map.size(0),
             op, concat("is_given of bool [", map.size(0), "]"),
             mask.defined() ? concat(c10::toString(mask.scalar_type()), " ", c10::str(mask.sizes()))
                            : std::string("an undefined tensor"));
}

// The peaks of a map, given its norm over channels.
Peaks salient_cells(const Tensor& map, const Tensor& norm, const SamplerOptions& options) {
  return find_peaks(options.saliency == Saliency::Attention ? attention_saliency(map.detach())
                                                            : norm.detach().squeeze(1),
                    options);
}

Tensor scores_of(const Tensor& saliency, const SamplerOptions& options) {
  check_map("find_peaks", saliency, 3);
  check_sampler("find_peaks", saliency, options);
  return at::nan_to_num(in_working_type(saliency)).contiguous();
}

}  // namespace

Peaks composed::find_peaks(const Tensor& saliency, const SamplerOptions& options) {
  const at::NoGradGuard no_grad;
  const Tensor scores = scores_of(saliency, options).flatten(1);
  const Index height = saliency.size(1), width = saliency.size(2);
  const Reach reach = suppression_reach(options, height, width);
  Tensor suppressed = at::zeros_like(scores, at::kBool);
  const Tensor taken = at::zeros_like(suppressed);
  Tensor exhausted = at::zeros({}, scores.options().dtype(at::kLong));
  std::vector<Tensor> cells;
  for (Index k = 0; k < options.parts; ++k) {
    const Tensor full = suppressed.all(1, /*keepdim=*/true);
    exhausted += full.sum();
    // If a map is closed altogether, argmax gives the first cell.
    const Tensor closed = options.allow_repeats ? suppressed : at::where(full, taken, suppressed);
    const Tensor best =
        scores.masked_fill(closed, -std::numeric_limits<double>::infinity()).argmax(1, true);
    taken.scatter_(1, best, true);
    cells.push_back(at::stack({best.floor_divide(width), best.remainder(width)}, 2));
    suppressed = suppressed.logical_or(within_reach(cells.back(), height, width, reach).squeeze(1));
  }
  return {at::cat(cells, 1), exhausted};
}

Peaks find_peaks(const Tensor& saliency, const SamplerOptions& options) {
  if (saliency.defined() && !saliency.is_cpu()) return composed::find_peaks(saliency, options);
  const at::NoGradGuard no_grad;
  const Tensor scores = scores_of(saliency, options);
  return scores.scalar_type() == at::kDouble ? search_maps<double>(scores, options)
                                             : search_maps<float>(scores, options);
}

Tensor parts_at(const Tensor& features, const Tensor& peaks, Index window) {
  check_map("parts_at", features, 4);
  check_window("parts_at", window);
  check_peaks("parts_at", features, peaks);
  const Index height = features.size(2), width = features.size(3);
  const ExactScope exact;
  return marked_means(in_working_type(features),
                      within_reach(peaks, height, width, {window / 2, window / 2}));
}

SampledParts sample_parts(const Tensor& features, const SamplerOptions& options,
                          const GivenPeaks& given) {
  check_map("sample_parts", features, 4);
  check_sampler("sample_parts", features, options);
  if (given.cells.defined()) check_given("sample_parts", features, given, options.parts);
  HONE_TRACE_ZONE("sample_parts", {"images", features.size(0)}, {"parts", options.parts});
  const ExactScope exact;
  const Tensor map = in_working_type(features), norm = channel_norm(map);
  Peaks peaks;
  if (given.cells.defined()) {
    const Tensor others = given.is_given.logical_not().nonzero().squeeze(1);
    const auto of_others = [&](const Tensor& all) { return all.detach().index_select(0, others); };
    peaks = salient_cells(of_others(map), of_others(norm), options);
    peaks.cells = given.cells.index_copy(0, others, peaks.cells);
  } else {
    peaks = salient_cells(map, norm, options);
  }
  const Index half = options.window / 2;
  const Tensor marked = within_reach(peaks.cells, map.size(2), map.size(3), {half, half});
  return {marked_means(map, marked), peaks.cells, marked_means(norm, marked).mean({1, 2}),
          peaks.exhausted};
}

}  // namespace hone::paco
