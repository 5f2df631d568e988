// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/batched/mine_negative.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/core/trace.h"
#include "hone/kernels/batched/mine_pool.h"
#include "hone/kernels/batched/ridge_distance.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/batched/mine_negative.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/batched/mine_negative-inl.h"

#if HWY_ONCE
namespace hone::kernels {

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

double dot(const double* a, const double* b, Index count) {
  double sum = 0;
  for (Index i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

bool is_allowed(const MineNegativeArgs& args, Index image, Index row) {
  if (args.owner != nullptr && args.owner[row] == image) return false;
  return args.pool_label == nullptr || args.pool_label[row] != args.anchor_label[image];
}

// One worker's part of the work; the metric and the anchors of one image at a time.
class Miner {
 public:
  Miner(const MineNegativeArgs& args, const MinePool& pool, double* scratch)
      : args_(args),
        pool_(pool),
        vectors_(scratch),
        panel_(vectors_ + (args.rank + args.parts) * args.dim),
        products_(panel_ + kPanelRows * args.dim),
        own_(products_ + (args.rank + args.parts) * kTileRows),
        threshold_(own_ + args.parts),
        lowest_(threshold_ + args.parts),
        lowest_beyond_(lowest_ + args.parts),
        anchors_(vectors_ + args.rank * args.dim),
        choices_(static_cast<std::size_t>(args.parts)) {}

  static Index scratch_doubles(const MineNegativeArgs& args) {
    const Index width = args.rank + args.parts;
    return round_up(width * (args.dim + kTileRows) + kPanelRows * args.dim + 4 * args.parts, 8);
  }

  void mine(Index image) {
    std::fill(choices_.begin(), choices_.end(), Choice{});
    load_metric(image);
    project_anchors();
    load_thresholds(image);
    for (Index first = 0; first < pool_.panel_count(); first += kPanelsPerTile)
      rank_rows(image, first, std::min(kPanelsPerTile, pool_.panel_count() - first));
    for (Index part = 0; part < args_.parts; ++part) {
      const Index row = choices_[static_cast<std::size_t>(part)].best().row;
      args_.index[image * args_.parts + part] = std::max<Index>(row, 0);
      args_.found[image * args_.parts + part] = row >= 0;
    }
  }

 private:
  // V = L^-1 A^T and the anchors less the center; own = |p|^2.
  void load_metric(Index image) {
    const Index rank = args_.rank, dim = args_.dim;
    const double* factor = args_.factor + image * rank * dim;
    const double* chol = args_.chol + image * rank * rank;
    for (Index i = 0; i < rank; ++i) {
      double* row = vectors_ + i * dim;
      std::copy_n(factor + i * dim, dim, row);
      for (Index k = 0; k < i; ++k)
        for (Index c = 0; c < dim; ++c) row[c] -= chol[i * rank + k] * vectors_[k * dim + c];
      const double inverse = 1 / chol[i * rank + i];
      for (Index c = 0; c < dim; ++c) row[c] *= inverse;
    }
    for (Index part = 0; part < args_.parts; ++part) {
      const double* from = args_.anchor + (image * args_.parts + part) * dim;
      double* row = anchors_ + part * dim;
      for (Index c = 0; c < dim; ++c)
        row[c] = from[c] - pool_.center[static_cast<std::size_t>(c)];
      own_[part] = dot(row, row, dim);
    }
  }

  // The anchors p become p' = p - V^T V p. own = |p|^2 - |V p|^2; threshold = |p|^2.
  void project_anchors() {
    const Index rank = args_.rank, dim = args_.dim;
    std::copy_n(own_, args_.parts, threshold_);
    for (Index first = 0; first < args_.parts; first += kPanelRows) {
      const Index count = std::min(kPanelRows, args_.parts - first);
      std::fill_n(panel_, kPanelRows * dim, 0.0);
      for (Index part = 0; part < count; ++part)
        for (Index c = 0; c < dim; ++c)
          panel_[c * kPanelRows + part] = anchors_[(first + part) * dim + c];
      HWY_DYNAMIC_DISPATCH(multiply_panels)(vectors_, rank, dim, panel_, 1, products_);
      for (Index part = 0; part < count; ++part) {
        double* row = anchors_ + (first + part) * dim;
        for (Index r = 0; r < rank; ++r) {
          const double along = products_[r * kTileRows + part];
          own_[first + part] -= along * along;
          for (Index c = 0; c < dim; ++c) row[c] -= along * vectors_[r * dim + c];
        }
      }
    }
  }

  // The rounding of delta q is relative to |p|^2 + |n|^2 and, by that of L, to |G| q. Sigma and G
  // are at most `size`, so that |n|^2 <= 2 |p|^2 + 2 size q.
  void load_thresholds(Index image) {
    const double* chol = args_.chol + image * args_.rank * args_.rank;
    const double delta = args_.delta[image];
    const double size = delta + dot(chol, chol, args_.rank * args_.rank);
    const double rounding = rounding_of(args_.dim + args_.rank) / delta;
    for (Index part = 0; part < args_.parts; ++part) {
      if (args_.mode == MineMode::Hardest) {
        threshold_[part] = kInfinity;
      } else {
        const double positive = args_.positive_q[image * args_.parts + part];
        threshold_[part] = positive + rounding * (threshold_[part] + size * positive);
      }
    }
  }

  void rank_rows(Index image, Index first, Index count) {
    const Index row = first * kPanelRows;
    HWY_DYNAMIC_DISPATCH(multiply_panels)
    (vectors_, args_.rank + args_.parts, args_.dim, pool_.panel(first), count, products_);
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
        .own = own_,
        .threshold = threshold_,
        .products = products_,
        .lowest = lowest_,
        .lowest_beyond = lowest_beyond_};
    HWY_DYNAMIC_DISPATCH(rank_tile)(tile);
    for (Index part = 0; part < args_.parts; ++part) {
      const double* q = products_ + (args_.rank + part) * kTileRows;
      const auto offer = [&](double lowest, Nearest& nearest) {
        if (lowest < nearest.q) nearest = {lowest, row + (std::find(q, q + tile.rows, lowest) - q)};
      };
      offer(lowest_[part], choices_[static_cast<std::size_t>(part)].any);
      offer(lowest_beyond_[part], choices_[static_cast<std::size_t>(part)].beyond);
    }
  }

  const MineNegativeArgs& args_;
  const MinePool& pool_;
  double *vectors_, *panel_, *products_, *own_, *threshold_, *lowest_, *lowest_beyond_;
  double* anchors_;  // the rows of vectors_ after those of V
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
  HONE_TRACE_ZONE("mine_negative", {"batch", args.batch}, {"parts", args.parts},
                  {"dim", args.dim}, {"pool_rows", args.pool_rows});
  check(args);
  const bool is_screened = args.top_m > 0 && args.top_m < args.pool_rows;
  const MinePool pool(args, !is_screened, executor);
  const Index doubles = is_screened ? args.parts * kTileRows : Miner::scratch_doubles(args);
  const Buffer scratch(executor.workers() * doubles * static_cast<Index>(sizeof(double)));
  executor.parallel_for(args.batch, 1, [&](Index begin, Index end, int worker) {
    double* own = scratch.as<double>() + worker * doubles;
    if (is_screened) {
      for (Index image = begin; image < end; ++image) mine_screened(args, pool, image, own);
    } else {
      Miner miner(args, pool, own);
      for (Index image = begin; image < end; ++image) miner.mine(image);
    }
  });
}

}  // namespace hone::kernels
#endif
