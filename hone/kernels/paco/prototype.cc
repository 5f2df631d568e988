// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/paco/prototype.h"

#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/paco/small_matrix.h"

namespace hone::kernels {
namespace {

constexpr const char* kOp = "update_prototypes";

void check_update(const TwoViews& views, const PrototypeUpdate& update) {
  check_views(kOp, views);
  HONE_CHECK(update.momentum >= 0 && update.momentum <= 1, kOp, "momentum in [0, 1]",
             update.momentum);
  for (Index image = 0; image < views.batch; ++image) {
    const Index label = update.label[image];
    HONE_CHECK(label >= 0 && label < update.classes, kOp,
               concat("labels in [0, ", update.classes, ")"), concat(label, " for image ", image));
  }
}

// What is kept of the matrix of each image's class: 0 on the first visit.
std::vector<double> kept_shares(Index batch, const PrototypeUpdate& update) {
  std::vector<double> kept(static_cast<std::size_t>(batch));
  for (Index image = 0; image < batch; ++image) {
    Index& count = update.counts[update.label[image]];
    kept[static_cast<std::size_t>(image)] = count == 0 ? 0 : update.momentum;
    ++count;
  }
  return kept;
}

void move_mean(double& mean, double kept, double value) {
  mean = kept == 0 ? value : kept * mean + (1 - kept) * value;
}

}  // namespace

void update_prototypes(const TwoViews& views, const PrototypeUpdate& update, Executor& executor) {
  HONE_TRACE_ZONE(kOp, {"batch", views.batch}, {"dim", views.dim});
  check_update(views, update);
  const std::vector<double> kept = kept_shares(views.batch, update);
  const ViewRows loader(views);
  const Index dim = views.dim, count = 2 * loader.rank(), work = views.batch * dim * count;
  std::vector<double> rows(static_cast<std::size_t>(views.batch * count * dim));
  for (Index image = 0; image < views.batch; ++image)
    loader.load(image, rows.data() + image * count * dim);
  executor.parallel_for(dim, rows_per_chunk(work), [&](Index begin, Index end, int) {
    std::vector<double> products(static_cast<std::size_t>(dim));
    for (Index image = 0; image < views.batch; ++image) {
      const double share = kept[static_cast<std::size_t>(image)];
      const double* of = rows.data() + image * count * dim;
      for (Index i = begin; i < end; ++i) {
        if (update.diagonal) {
          double square = 0;
          for (Index k = 0; k < count; ++k) square += of[k * dim + i] * of[k * dim + i];
          move_mean(update.matrices[update.label[image] * dim + i], share,
                    views.epsilon + square / 2);
          continue;
        }
        mix_row(of + i, dim, of, count, dim, products.data());
        double* row = update.matrices + (update.label[image] * dim + i) * dim;
        for (Index j = 0; j < dim; ++j) {
          const double variance = i == j ? views.epsilon : 0;
          move_mean(row[j], share, variance + products[static_cast<std::size_t>(j)] / 2);
        }
      }
    }
  });
}

}  // namespace hone::kernels
