// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/remove_inputs.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "hone/compress/method/damped_factor.h"
#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/linalg/triangular.h"

namespace hone::compress {
namespace {

constexpr Index kSampledRows = 64;
constexpr Index kColumnsOfABatch = 256;   // one more unit goes at once for so many columns
constexpr double kLargestOverlap = 0.25;  // of units that go at once, as a squared correlation
constexpr double kLeastDamping = 1e-9;    // of the mean of the diagonal
constexpr double kNever = std::numeric_limits<double>::infinity();

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// The inverse of H + D.
std::vector<double> inverse_of(const kernels::Gram& inputs, double damp, Executor& executor) {
  const Index n = inputs.cols();
  const std::vector<double> lower = damped_factor(inputs, damp, kLeastDamping, executor);
  std::vector<double> inverse(at(n * n));
  for (Index i = 0; i < n; ++i) inverse[at(i * n + i)] = 1;
  kernels::solve_cholesky(lower, n, inverse, executor);
  return inverse;
}

class Remover {
 public:
  Remover(const kernels::Gram& inputs, const WeightMatrix& matrix, const RemovalOptions& options,
          Executor& executor)
      : inputs_(inputs),
        matrix_(matrix),
        options_(options),
        executor_(executor),
        n_(matrix.cols),
        weights_(matrix.values.begin(), matrix.values.end()),
        gone_(at(units())),
        left_(at(options.groups), options.removed) {}

  Removal run();

 private:
  Index units() const { return n_ / options_.unit; }
  Index group_of(Index unit) const { return unit / (units() / options_.groups); }
  void check() const;
  void remove_with_repair();
  std::vector<double> energies() const;
  std::vector<double> losses() const;
  std::vector<Index> choose(std::span<const double> scores, Index most);
  bool overlaps(Index unit, std::span<const Index> chosen) const;
  void apply(std::span<const Index> chosen);
  double sampled_energy(bool repaired) const;

  const kernels::Gram& inputs_;
  const WeightMatrix& matrix_;
  const RemovalOptions& options_;
  Executor& executor_;
  Index n_;
  std::vector<double> weights_;     // as repaired so far
  std::vector<double> inverse_;     // G
  std::vector<std::uint8_t> gone_;  // by unit
  std::vector<Index> left_;         // units that still go, by group
};

void Remover::check() const {
  const RemovalOptions& o = options_;
  HONE_CHECK(inputs_.cols() == n_, "remove inputs", concat("inputs of ", n_, " columns"),
             inputs_.cols());
  HONE_CHECK(o.unit > 0 && o.groups > 0 && n_ % (o.unit * o.groups) == 0, "remove inputs",
             concat("units and groups that divide ", n_, " columns"),
             concat(o.unit, " and ", o.groups));
  HONE_CHECK(o.removed >= 0 && o.removed < units() / o.groups, "remove inputs",
             concat("fewer than ", units() / o.groups, " units"), o.removed);
  if (!inputs_.is_finite()) fail_corrupt(matrix_.name, "finite inputs", "a value that is not");
  check_finite(matrix_);
}

// tr(W_S H_SS W_Sᵀ) for each unit.
std::vector<double> Remover::energies() const {
  std::vector<double> scores(at(units()));
  const Index size = options_.unit;
  executor_.parallel_for(units(), 1, [&](Index begin, Index end, int) {
    for (Index unit = begin; unit < end; ++unit) {
      for (Index row = 0; row < matrix_.rows; ++row) {
        const float* const w = matrix_.row(row).data() + unit * size;
        for (Index i = 0; i < size; ++i) {
          for (Index j = 0; j < size; ++j)
            scores[at(unit)] += static_cast<double>(w[i]) * static_cast<double>(w[j]) *
                                inputs_(unit * size + i, unit * size + j);
        }
      }
    }
  });
  return scores;
}

// tr(W_S G_SS⁻¹ W_Sᵀ) for each unit that is left.
std::vector<double> Remover::losses() const {
  std::vector<double> scores(at(units()), kNever);
  const Index size = options_.unit;
  executor_.parallel_for(units(), 16, [&](Index begin, Index end, int) {
    std::vector<double> block(at(size * size)), rows(at(matrix_.rows * size));
    for (Index unit = begin; unit < end; ++unit) {
      if (gone_[at(unit)] != 0) continue;
      const Index first = unit * size;
      for (Index i = 0; i < size; ++i)
        for (Index j = 0; j < size; ++j)
          block[at(i * size + j)] = inverse_[at((first + i) * n_ + first + j)];
      for (Index row = 0; row < matrix_.rows; ++row)
        std::copy_n(weights_.data() + row * n_ + first, size, rows.data() + row * size);
      if (!kernels::factor_cholesky(block, size, serial_executor())) continue;
      // The squares of x with x Lᵀ = w add up to w G⁻¹ wᵀ.
      kernels::solve_right_transposed(block, size, rows, serial_executor());
      scores[at(unit)] = std::inner_product(rows.begin(), rows.end(), rows.begin(), 0.0);
    }
  });
  return scores;
}

// Whether the unit could stand in for one that has been chosen already.
bool Remover::overlaps(Index unit, std::span<const Index> chosen) const {
  const Index size = options_.unit;
  return std::ranges::any_of(chosen, [&](Index other) {
    for (Index i = unit * size; i < (unit + 1) * size; ++i) {
      for (Index j = other * size; j < (other + 1) * size; ++j) {
        const double both = inverse_[at(i * n_ + j)];
        if (both * both > kLargestOverlap * inverse_[at(i * n_ + i)] * inverse_[at(j * n_ + j)])
          return true;
      }
    }
    return false;
  });
}

// At most `most` units with the least scores, as far as their groups still give any.
std::vector<Index> Remover::choose(std::span<const double> scores, Index most) {
  std::vector<Index> order(scores.size()), chosen;
  std::iota(order.begin(), order.end(), Index{0});
  std::ranges::stable_sort(order, {}, [&](Index unit) { return scores[at(unit)]; });
  for (const Index unit : order) {
    if (std::ssize(chosen) == most) break;
    Index& left = left_[at(group_of(unit))];
    if (gone_[at(unit)] != 0 || left == 0) continue;
    if (!inverse_.empty() && overlaps(unit, chosen)) continue;
    --left;
    gone_[at(unit)] = 1;
    chosen.push_back(unit);
  }
  return chosen;
}

// Removes units and changes W and G: both lose their part that goes through the units' columns S,
//   W -= W_S G_SS⁻¹ G_S: and G -= G_:S G_SS⁻¹ G_S:.
void Remover::apply(std::span<const Index> chosen) {
  const Index size = options_.unit, count = std::ssize(chosen) * size;
  std::vector<Index> columns;
  for (const Index unit : chosen)
    for (Index i = 0; i < size; ++i) columns.push_back(unit * size + i);
  const auto gather = [&](const std::vector<double>& from, Index rows) {
    std::vector<double> out(at(rows * count));
    for (Index row = 0; row < rows; ++row)
      for (Index i = 0; i < count; ++i)
        out[at(row * count + i)] = from[at(row * n_ + columns[at(i)])];
    return out;
  };
  const std::vector<double> through = gather(inverse_, n_);
  std::vector<double> block(at(count * count));
  for (Index i = 0; i < count; ++i)
    std::copy_n(through.data() + columns[at(i)] * count, count, block.data() + i * count);
  HONE_REQUIRE(kernels::factor_cholesky(block, count, executor_), "remove inputs",
               "The inverse is not positive definite.");
  const auto subtract = [&](std::vector<double>& from, Index rows) {
    std::vector<double> part = gather(from, rows);
    kernels::solve_cholesky(block, count, part, executor_);
    kernels::subtract_product({.a = part.data(),
                               .a_stride = count,
                               .b = through.data(),
                               .b_stride = count,
                               .c = from.data(),
                               .c_stride = n_,
                               .rows = rows,
                               .cols = n_,
                               .depth = count},
                              executor_);
  };
  subtract(weights_, matrix_.rows);
  subtract(inverse_, n_);
}

void Remover::remove_with_repair() {
  inverse_ = inverse_of(inputs_, options_.damp, executor_);
  const Index batch = std::max<Index>(1, n_ / kColumnsOfABatch / options_.unit);
  for (;;) {
    const std::vector<Index> chosen = choose(losses(), batch);
    if (chosen.empty()) return;
    apply(chosen);
  }
}

// Σ δ H δᵀ over a sample of rows, where δ is the change of a row or, without a repair, the columns
// that are gone; divided by that of the rows.
double Remover::sampled_energy(bool repaired) const {
  const Index rows = std::min(kSampledRows, matrix_.rows);
  std::vector<double> changes(at(rows)), sizes(at(rows));
  executor_.parallel_for(rows, 1, [&](Index begin, Index end, int) {
    std::vector<double> change(at(n_)), whole(at(n_));
    for (Index i = begin; i < end; ++i) {
      const Index row = i * matrix_.rows / rows;
      for (Index col = 0; col < n_; ++col) {
        const double w = matrix_.row(row)[at(col)];
        const bool is_gone = gone_[at(col / options_.unit)] != 0;
        whole[at(col)] = w;
        change[at(col)] = is_gone ? w : repaired ? w - weights_[at(row * n_ + col)] : 0;
      }
      for (Index col = 0; col < n_; ++col) {
        double of_change = 0, of_whole = 0;
        for (Index k = 0; k < col; ++k) {
          of_change += change[at(k)] * inputs_(col, k);
          of_whole += whole[at(k)] * inputs_(col, k);
        }
        const double own = inputs_(col, col);
        changes[at(i)] += change[at(col)] * (2 * of_change + change[at(col)] * own);
        sizes[at(i)] += whole[at(col)] * (2 * of_whole + whole[at(col)] * own);
      }
    }
  });
  const double size = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  return size > 0 ? std::max(0.0, std::accumulate(changes.begin(), changes.end(), 0.0)) / size : 0;
}

Removal Remover::run() {
  HONE_TRACE_ZONE("remove inputs", {"rows", matrix_.rows}, {"cols", n_});
  check();
  if (options_.repair) {
    remove_with_repair();
  } else {
    choose(energies(), units());
  }
  Removal out;
  for (Index col = 0; col < n_; ++col)
    if (gone_[at(col / options_.unit)] == 0) out.kept.push_back(col);
  for (Index row = 0; row < matrix_.rows; ++row)
    for (const Index col : out.kept)
      out.weights.push_back(static_cast<float>(weights_[at(row * n_ + col)]));
  out.error_unrepaired = sampled_energy(false);
  out.error = options_.repair ? sampled_energy(true) : out.error_unrepaired;
  return out;
}

}  // namespace

Removal remove_inputs(const kernels::Gram& inputs, const WeightMatrix& matrix,
                      const RemovalOptions& options, Executor& executor) {
  return Remover(inputs, matrix, options, executor).run();
}

}  // namespace hone::compress
