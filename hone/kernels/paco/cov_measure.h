// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/machine/trace.h"
#include "hone/core/thread/executor.h"
#include "hone/kernels/paco/cov_metric.h"
#include "hone/kernels/paco/small_matrix.h"
#include "hone/kernels/paco/view_rows.h"

// The loops over images of the covariance metrics. `make` returns a measure with its own scratch
// memory:
//   bool applies(Index image);  false: distance and gradient are 0
//   double distance(const double* rows, Index image);  rows from ViewRows::load()
//   void grad(const double* rows, Index image, double* grad_rows);  [2 rank, dim]
// `work` is about the number of multiplications for one image.
namespace hone::kernels {

inline bool has_finite_squares(const double* rows, Index count) {
  double squares = 0;
  inner_products(rows, 1, rows, 1, count, &squares);
  return std::isfinite(squares);
}

template <class Make>
void measure_images(const TwoViews& views, Index work, double* distance, Executor& executor,
                    const Make& make) {
  const Index count = 2 * (views.parts - 1) * views.dim;
  executor.parallel_for(views.batch, rows_per_chunk(work), [&](Index begin, Index end, int) {
    ViewRows rows(views);
    auto measure = make();
    for (Index image = begin; image < end; ++image) {
      double value = 0;
      if (measure.applies(image)) {
        const double* at = rows.load(image);
        value = has_finite_squares(at, count) ? measure.distance(at, image)
                                              : std::numeric_limits<double>::quiet_NaN();
      }
      distance[image] = value < 0 ? 0 : value;
    }
  });
}

template <class Make>
void differentiate_images(const TwoViews& views, Index work, const CovGrad& grad,
                          Executor& executor, const Make& make) {
  const Index count = 2 * (views.parts - 1) * views.dim, stride = views.parts * views.dim;
  executor.parallel_for(views.batch, rows_per_chunk(work), [&](Index begin, Index end, int) {
    ViewRows rows(views);
    auto measure = make();
    std::vector<double> by_rows(static_cast<std::size_t>(count));
    for (Index image = begin; image < end; ++image) {
      double *by_z1 = grad.grad_z1 + image * stride, *by_z2 = grad.grad_z2 + image * stride;
      const bool applies = measure.applies(image);
      const double* at = applies ? rows.load(image) : nullptr;
      if (!applies || !has_finite_squares(at, count)) {
        const double fill = applies ? std::numeric_limits<double>::quiet_NaN() : 0;
        std::fill_n(by_z1, stride, fill);
        std::fill_n(by_z2, stride, fill);
        continue;
      }
      measure.grad(at, image, by_rows.data());
      for (double& value : by_rows) value *= grad.grad_distance[image];
      rows.pull_back(by_rows.data(), by_z1, by_z2);
    }
  });
}

}  // namespace hone::kernels
