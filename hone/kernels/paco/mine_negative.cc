// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/paco/mine_negative.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/paco/mine_pool.h"
#include "hone/kernels/paco/ridge_distance.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/paco/mine_negative.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/paco/mine_negative-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(load_image);
HWY_EXPORT(multiply_panels);
HWY_EXPORT(rank_tile);

namespace {

constexpr Index kPanelRows = MinePool::kPanelRows, kTileRows = MinePool::kTileRows;
constexpr Index kPanelsPerTile = kTileRows / kPanelRows;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Nearest {
  double q = kInfinity;
  Index row = -1;
};

// What has been seen for one anchor.
struct Choice {
  Nearest any, beyond;

  const Nearest& best() const { return beyond.row >= 0 ? beyond : any; }
};

// A multiple of the rounding of a sum of that many products, relative to the sum of their sizes.
double rounding_of(Index terms) {
  return 8 * static_cast<double>(terms) * std::numeric_limits<double>::epsilon();
}

bool is_allowed(const MineNegativeArgs& args, Index image, Index row) {
  if (args.owner != nullptr && args.owner[row] == image) return false;
  return args.pool_label == nullptr || args.pool_label[row] != args.anchor_label[image];
}

// One worker's share of the images. A few of them meet every tile of the pool before the next tile,
// so that a pool larger than the cache is read less often.
class Miner {
 public:
  static constexpr Index kImages = 8;

  Miner(const MineNegativeArgs& args, const MinePool& pool, double* scratch)
      : args_(args),
        pool_(pool),
        panel_(scratch),
        products_(panel_ + kPanelRows * args.dim),
        lowest_(products_ + (args.rank + args.parts) * kTileRows),
        lowest_beyond_(lowest_ + args.parts),
        images_(lowest_beyond_ + args.parts),
        choices_(static_cast<std::size_t>(kImages * args.parts)) {}

  // What a worker's Miner allocates itself.
  static Index choice_bytes(const MineNegativeArgs& args) {
    return kImages * args.parts * static_cast<Index>(sizeof(Choice));
  }
  static Index scratch_doubles(const MineNegativeArgs& args) {
    const Index shared =
        kPanelRows * args.dim + (args.rank + args.parts) * kTileRows + 2 * args.parts;
    return round_up(shared + kImages * image_doubles(args), 8);
  }

  // At most kImages.
  void mine(Index begin, Index end) {
    std::fill(choices_.begin(), choices_.end(), Choice{});
    for (Index image = begin; image < end; ++image) load(image, slot_of(image - begin));
    for (Index first = 0; first < pool_.panel_count(); first += kPanelsPerTile) {
      const Index count = std::min(kPanelsPerTile, pool_.panel_count() - first);
      for (Index image = begin; image < end; ++image)
        rank_rows(image, slot_of(image - begin), first, count);
    }
    const Index anchors = (end - begin) * args_.parts;
    for (Index at = 0; at < anchors; ++at) {
      const Index row = choices_[static_cast<std::size_t>(at)].best().row;
      args_.index[begin * args_.parts + at] = std::max<Index>(row, 0);
      args_.found[begin * args_.parts + at] = row >= 0;
    }
  }

 private:
  // What is kept of an image while the tiles pass.
  struct Slot {
    double *vectors, *own, *threshold;
    Choice* choices;
  };

  static Index image_doubles(const MineNegativeArgs& args) {
    return (args.rank + args.parts) * args.dim + 2 * args.parts;
  }

  Slot slot_of(Index at) {
    double* vectors = images_ + at * image_doubles(args_);
    double* own = vectors + (args_.rank + args_.parts) * args_.dim;
    return {vectors, own, own + args_.parts, choices_.data() + at * args_.parts};
  }

  // The rounding of delta q is relative to |p|^2 + |n|^2 and, by that of L, to |G| q. Sigma and G
  // are at most `size`, so that |n|^2 <= 2 |p|^2 + 2 size q.
  void load(Index image, const Slot& slot) {
    const Index rank = args_.rank;
    const double* chol = args_.chol + image * rank * rank;
    HWY_DYNAMIC_DISPATCH(load_image)
    ({.rank = rank,
      .parts = args_.parts,
      .dim = args_.dim,
      .factor = args_.factor + image * rank * args_.dim,
      .chol = chol,
      .anchor = args_.anchor + image * args_.parts * args_.dim,
      .center = pool_.center.data(),
      .vectors = slot.vectors,
      .square = slot.threshold,
      .own = slot.own,
      .panel = panel_,
      .products = products_});
    const double delta = args_.delta[image];
    double size = delta;
    for (Index i = 0; i < rank * rank; ++i) size += chol[i] * chol[i];
    const double rounding = rounding_of(args_.dim + rank) / delta;
    for (Index part = 0; part < args_.parts; ++part) {
      double& threshold = slot.threshold[part];  // |p|^2 so far
      if (args_.mode == MineMode::Hardest) {
        threshold = kInfinity;
      } else {
        const double positive = args_.positive_q[image * args_.parts + part];
        threshold = positive + rounding * (threshold + size * positive);
      }
    }
  }

  void rank_rows(Index image, const Slot& slot, Index first, Index count) {
    const Index row = first * kPanelRows;
    HWY_DYNAMIC_DISPATCH(multiply_panels)
    (slot.vectors, args_.rank + args_.parts, args_.dim, pool_.panel(first), count, products_);
    const MineTile tile{
        .rank = args_.rank,
        .parts = args_.parts,
        .rows = count * kPanelRows,
        .squares = pool_.squares.data() + row,
        .owner = args_.owner == nullptr ? nullptr : pool_.owner.data() + row,
        .label = args_.pool_label == nullptr ? nullptr : pool_.label.data() + row,
        .image = image,
        .image_label = args_.anchor_label == nullptr ? 0 : args_.anchor_label[image],
        .inverse_delta = 1 / args_.delta[image],
        .own = slot.own,
        .threshold = slot.threshold,
        .products = products_,
        .lowest = lowest_,
        .lowest_beyond = lowest_beyond_};
    HWY_DYNAMIC_DISPATCH(rank_tile)(tile);
    for (Index part = 0; part < args_.parts; ++part) {
      const double* q = products_ + (args_.rank + part) * kTileRows;
      const auto offer = [&](double lowest, Nearest& nearest) {
        if (lowest < nearest.q) nearest = {lowest, row + (std::find(q, q + tile.rows, lowest) - q)};
      };
      offer(lowest_[part], slot.choices[part].any);
      offer(lowest_beyond_[part], slot.choices[part].beyond);
    }
  }

  const MineNegativeArgs& args_;
  const MinePool& pool_;
  double *panel_, *products_, *lowest_, *lowest_beyond_, *images_;
  std::vector<Choice> choices_;
};

// The rows with the largest cosines that one anchor has met, the worst of them in front.
class Screen {
 public:
  explicit Screen(Index most) : most_(static_cast<std::size_t>(most)) {}

  // Rows come in ascending order; of equal cosines the first stay.
  bool wants(double cosine) const {
    return kept_.size() < most_ ? cosine == cosine : cosine > kept_.front().cosine;
  }
  void add(double cosine, Index row) {
    if (kept_.size() == most_) {
      std::pop_heap(kept_.begin(), kept_.end(), is_better);
      kept_.pop_back();
    }
    kept_.push_back({cosine, row});
    std::push_heap(kept_.begin(), kept_.end(), is_better);
  }
  std::vector<Index> take_rows() {
    std::vector<Index> rows;
    for (const Kept& kept : kept_) rows.push_back(kept.row);
    std::sort(rows.begin(), rows.end());
    kept_.clear();
    return rows;
  }

 private:
  struct Kept {
    double cosine;
    Index row;
  };
  static bool is_better(const Kept& a, const Kept& b) {
    return a.cosine > b.cosine || (a.cosine == b.cosine && a.row < b.row);
  }

  std::size_t most_;
  std::vector<Kept> kept_;
};

// Offers the rows of one tile, whose products with the anchors [parts, kTileRows] are given.
void screen_rows(const MineNegativeArgs& args, const MinePool& pool, Index image, Index first_row,
                 const double* products, std::vector<Screen>& screens) {
  const Index count = std::min(kTileRows, pool.rows - first_row);
  double norms[kTileRows];
  for (Index i = 0; i < count; ++i)
    norms[i] = std::max(std::sqrt(pool.squares[static_cast<std::size_t>(first_row + i)]), 1e-12);
  for (Index part = 0; part < args.parts; ++part) {
    Screen& screen = screens[static_cast<std::size_t>(part)];
    for (Index i = 0; i < count; ++i) {
      // The anchor's norm does not change the order.
      const double cosine = products[part * kTileRows + i] / norms[i];
      if (screen.wants(cosine) && is_allowed(args, image, first_row + i)) {
        screen.add(cosine, first_row + i);
      }
    }
  }
}

// The choice of one anchor among few rows.
Choice choose_by_ridge(const MineNegativeArgs& args, Index image, Index part,
                       const std::vector<Index>& rows) {
  const Index dim = args.dim, rank = args.rank, count = static_cast<Index>(rows.size());
  const double* anchor = args.anchor + (image * args.parts + part) * dim;
  std::vector<double> x(rows.size() * static_cast<std::size_t>(dim)), q(rows.size());
  std::vector<double> y(rows.size() * static_cast<std::size_t>(rank));
  for (Index i = 0; i < count; ++i) {
    const double* row = args.pool + rows[static_cast<std::size_t>(i)] * dim;
    std::transform(anchor, anchor + dim, row, x.data() + i * dim, std::minus<double>());
  }
  ridge_distance({.batch = 1,
                  .rows = count,
                  .rank = rank,
                  .dim = dim,
                  .factor = args.factor + image * rank * dim,
                  .chol = args.chol + image * rank * rank,
                  .delta = args.delta + image,
                  .x = x.data(),
                  .y = y.data(),
                  .q = q.data()});
  double threshold = kInfinity;
  if (args.mode == MineMode::SemiHard) {
    threshold = args.positive_q[image * args.parts + part] * (1 + rounding_of(dim + rank));
  }
  Choice choice;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (q[i] < choice.any.q) choice.any = {q[i], rows[i]};
    if (q[i] > threshold && q[i] < choice.beyond.q) choice.beyond = {q[i], rows[i]};
  }
  return choice;
}

void mine_screened(const MineNegativeArgs& args, const MinePool& pool, Index image,
                   double* products) {
  std::vector<Screen> screens(static_cast<std::size_t>(args.parts), Screen(args.top_m));
  const double* anchors = args.anchor + image * args.parts * args.dim;
  for (Index first = 0; first < pool.panel_count(); first += kPanelsPerTile) {
    const Index count = std::min(kPanelsPerTile, pool.panel_count() - first);
    HWY_DYNAMIC_DISPATCH(multiply_panels)
    (anchors, args.parts, args.dim, pool.panel(first), count, products);
    screen_rows(args, pool, image, first * kPanelRows, products, screens);
  }
  for (Index part = 0; part < args.parts; ++part) {
    const auto rows = screens[static_cast<std::size_t>(part)].take_rows();
    const Index row = choose_by_ridge(args, image, part, rows).best().row;
    args.index[image * args.parts + part] = std::max<Index>(row, 0);
    args.found[image * args.parts + part] = row >= 0;
  }
}

void check(const MineNegativeArgs& args) {
  constexpr auto kOp = "mine_negative";
  HONE_CHECK(args.batch >= 0, kOp, "batch >= 0", args.batch);
  HONE_CHECK(args.parts > 0, kOp, "parts > 0", args.parts);
  HONE_CHECK(args.rank >= 0, kOp, "rank >= 0", args.rank);
  HONE_CHECK(args.dim > 0, kOp, "dim > 0", args.dim);
  HONE_CHECK(args.pool_rows >= 0, kOp, "pool_rows >= 0", args.pool_rows);
  HONE_CHECK(args.top_m >= 0, kOp, "top_m >= 0", args.top_m);
  HONE_REQUIRE((args.pool_label == nullptr) == (args.anchor_label == nullptr), kOp,
               "Labels of the pool and of the anchors are given together or not at all.");
  check_ridge_deltas(kOp, args.delta, args.batch);
}

}  // namespace

void mine_negative(const MineNegativeArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("mine_negative", {"batch", args.batch}, {"parts", args.parts}, {"dim", args.dim},
                  {"pool_rows", args.pool_rows});
  check(args);
  const bool is_screened = args.top_m > 0 && args.top_m < args.pool_rows;
  const MinePool pool(args, !is_screened, executor);
  const Index doubles = is_screened ? args.parts * kTileRows : Miner::scratch_doubles(args);
  const Buffer scratch(executor.workers() * doubles * static_cast<Index>(sizeof(double)));
  // Sixteen chunks at least: the pool of a small batch fits the cache.
  const Index grain = std::clamp<Index>(args.batch / 16, 1, Miner::kImages);
  executor.parallel_for(args.batch, grain, [&](Index begin, Index end, int worker) {
    double* own = scratch.as<double>() + worker * doubles;
    if (is_screened) {
      for (Index image = begin; image < end; ++image) mine_screened(args, pool, image, own);
    } else {
      Miner(args, pool, own).mine(begin, end);
    }
  });
}

Index mine_negative_bytes(const MineNegativeArgs& args, int workers) {
  const Index doubles = MinePool::numbers(args) + workers * Miner::scratch_doubles(args);
  return doubles * static_cast<Index>(sizeof(double)) + workers * Miner::choice_bytes(args);
}

}  // namespace hone::kernels
#endif
