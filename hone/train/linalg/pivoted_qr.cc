// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/pivoted_qr.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/machine/trace.h"
#include "hone/train/exact_scope.h"
#include "hone/train/linalg/matrix_input.h"

namespace hone::linalg {
namespace {

using at::Tensor;

constexpr std::string_view kPivotedQr = "pivoted_qr";
constexpr Index kPanel = 32;

template <class T>
double norm_of(const T* x, Index count) {
  double sums[4] = {};  // apart, so that additions do not wait for each other
  Index i = 0;
  for (; i + 4 <= count; i += 4) {
    for (Index lane = 0; lane < 4; ++lane) {
      const double value = x[i + lane];
      sums[lane] += value * value;
    }
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::sqrt((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Panels of reflectors, whose products with the columns to their right are put off to one matrix
// product (Quintana-Orti, Sun and Bischof, "A BLAS-3 version of the QR factorization with column
// pivoting", 1998). With the reflectors V and the factors F of a panel, column j of the matrix is
// column j of `columns` less V F[:, j].
template <class T>
class PivotedPanels {
 public:
  explicit PivotedPanels(detail::PackedQr& qr)
      : columns_(qr.columns),
        data_(qr.columns.mutable_data_ptr<T>()),
        count_(qr.columns.size(0)),
        length_(qr.columns.size(1)),
        tau_(qr.tau.mutable_data_ptr<T>()),
        pivots_(qr.pivots.mutable_data_ptr<std::int64_t>()),
        factors_(at::zeros({kPanel, count_}, qr.columns.options())),
        f_(factors_.mutable_data_ptr<T>()),
        least_(std::sqrt(unit_roundoff(qr.columns.scalar_type()))),
        norms_(static_cast<std::size_t>(count_)),
        exact_norms_(norms_) {
    for (Index j = 0; j < count_; ++j) set_norm(j, 0);
  }

  void run() {
    const Index rank = std::min(count_, length_);
    for (Index first = 0; first < rank;) first = panel(first, std::min(first + kPanel, rank));
  }

 private:
  T* column(Index j) { return data_ + j * length_; }
  Tensor part(Index j, Index j_end, Index i, Index i_end) const {
    return columns_.narrow(0, j, j_end - j).narrow(1, i, i_end - i);
  }
  Tensor factors(Index count, Index j) const {
    return factors_.narrow(0, 0, count).narrow(1, j, count_ - j);
  }

  void set_norm(Index j, Index from) {
    const auto at = static_cast<std::size_t>(j);
    norms_[at] = exact_norms_[at] = norm_of(column(j) + from, length_ - from);
  }

  // Returns where the next panel begins.
  Index panel(Index first, Index end) {
    Index k = first;
    stale_.clear();
    for (; k < end && stale_.empty(); ++k) {
      swap_columns(k, longest(k), first);
      reflect(k, first);
      downdate(k);
    }
    if (k < count_ && k < length_) {
      part(k, count_, k, length_)
          .addmm_(factors(k - first, k).t(), part(first, k, k, length_), 1, -1);
    }
    for (Index j = first; j < k; ++j) column(j)[j] = diagonal_[j - first];
    for (const Index j : stale_) set_norm(j, k);
    return k;
  }

  Index longest(Index from) const {
    return std::max_element(norms_.begin() + from, norms_.end()) - norms_.begin();
  }

  void swap_columns(Index j, Index other, Index first) {
    if (j == other) return;
    std::swap_ranges(column(j), column(j) + length_, column(other));
    for (Index p = 0; p < j - first; ++p) std::swap(f_[p * count_ + j], f_[p * count_ + other]);
    std::swap(pivots_[j], pivots_[other]);
    const auto a = static_cast<std::size_t>(j), b = static_cast<std::size_t>(other);
    norms_[b] = norms_[a];
    exact_norms_[b] = exact_norms_[a];
  }

  // Reflector k, its factors, and row k of the columns behind it.
  void reflect(Index k, Index first) {
    const Index p = k - first;
    Tensor v = part(k, k + 1, k, length_).squeeze(0);
    if (p > 0) {
      v.addmv_(part(first, k, k, length_).t(), factors_.select(1, k).narrow(0, 0, p), 1, -1);
    }
    diagonal_[p] = make_reflector(column(k) + k, length_ - k, tau_[k]);
    if (k + 1 == count_) return;
    Tensor f = factors_.select(0, p).narrow(0, k + 1, count_ - k - 1);
    at::mv_out(f, part(k + 1, count_, k, length_), v);
    f.mul_(tau_[k]);
    if (p > 0) {
      const Tensor overlap = at::mv(part(first, k, k, length_), v).mul_(tau_[k]);
      f.addmv_(factors(p, k + 1).t(), overlap, 1, -1);
    }
    const Tensor row_of_v = part(first, k + 1, k, k + 1).squeeze(1);
    columns_.select(1, k)
        .narrow(0, k + 1, count_ - k - 1)
        .addmv_(factors(p + 1, k + 1).t(), row_of_v, 1, -1);
  }

  // Makes x the reflector, with its leading 1, that takes x to the returned entry of R.
  static T make_reflector(T* x, Index count, T& tau) {
    const T head = x[0];
    const double tail = norm_of(x + 1, count - 1);
    x[0] = 1;
    tau = 0;
    if (tail == 0) return head;
    const double alpha = head, beta = -std::copysign(std::hypot(alpha, tail), alpha);
    tau = static_cast<T>((beta - alpha) / beta);
    for (Index i = 1; i < count; ++i) x[i] = static_cast<T>(x[i] / (alpha - beta));
    return static_cast<T>(beta);
  }

  void downdate(Index k) {
    for (Index j = k + 1; j < count_; ++j) {
      double& norm = norms_[static_cast<std::size_t>(j)];
      if (norm == 0) continue;
      const double share = std::abs(static_cast<double>(column(j)[k])) / norm;
      const double left = std::max(0.0, (1 - share) * (1 + share));
      const double of_exact = norm / exact_norms_[static_cast<std::size_t>(j)];
      if (left * of_exact * of_exact <= least_) {
        stale_.push_back(j);
      } else {
        norm *= std::sqrt(left);
      }
    }
  }

  Tensor columns_;
  T* data_;
  const Index count_, length_;
  T* tau_;
  std::int64_t* pivots_;
  Tensor factors_;  // F of the panel, [kPanel, count]
  T* f_;
  const double least_;
  std::vector<double> norms_, exact_norms_;  // downdated; when they were last computed
  std::vector<Index> stale_;                 // columns whose norms must be computed again
  T diagonal_[kPanel] = {};                  // of R, where the panel has the 1 of a reflector
};

}  // namespace

namespace detail {

Tensor PackedQr::r() const { return columns.narrow(1, 0, rank()).t().triu().contiguous(); }

Tensor PackedQr::q() const {
  return at::linalg_householder_product(columns.narrow(0, 0, rank()).t(), tau);
}

PackedQr factor_pivoted(Tensor columns) {
  HONE_TRACE_ZONE("pivoted_qr", {"rows", columns.size(1)}, {"cols", columns.size(0)});
  const Index count = columns.size(0), rank = std::min(count, columns.size(1));
  PackedQr qr{columns, at::zeros({rank}, columns.options()),
              at::arange(count, columns.options().dtype(at::kLong))};
  if (columns.scalar_type() == at::kFloat) {
    PivotedPanels<float>(qr).run();
  } else {
    PivotedPanels<double>(qr).run();
  }
  return qr;
}

void fix_signs(Tensor& q, Tensor& r) {
  const Tensor signs = at::where(r.diagonal().lt(0), -1.0, 1.0).to(r.scalar_type());
  r.mul_(signs.unsqueeze(1));
  if (q.defined()) q.mul_(signs);
}

}  // namespace detail

PivotedQr pivoted_qr(const Tensor& a) {
  check_cpu_matrix(kPivotedQr, "matrix", a);
  const c10::NoGradGuard no_grad;
  const ExactScope exact;
  const ScaledMatrix input = scaled(kPivotedQr, "matrix", a.detach());
  const detail::PackedQr qr =
      detail::factor_pivoted(input.matrix.t().clone(at::MemoryFormat::Contiguous));
  PivotedQr result{qr.q(), qr.r(), qr.pivots};
  detail::fix_signs(result.q, result.r);
  input.unscale(kPivotedQr, result.r);
  return result;
}

}  // namespace hone::linalg
