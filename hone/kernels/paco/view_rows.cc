// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/paco/view_rows.h"

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"

namespace hone::kernels {

void check_views(std::string_view op, const TwoViews& views) {
  HONE_CHECK(views.batch >= 0, op, "batch >= 0", views.batch);
  HONE_CHECK(views.parts > 0, op, "parts > 0", views.parts);
  HONE_CHECK(views.dim > 0, op, "dim > 0", views.dim);
  HONE_CHECK(views.epsilon > 0 && std::isfinite(views.epsilon), op, "a finite epsilon > 0",
             views.epsilon);
}

ViewRows::ViewRows(const TwoViews& views)
    : views_(views),
      helmert_(views.parts, views.parts - 1),
      rows_(static_cast<std::size_t>(2 * (views.parts - 1) * views.dim)) {}

const double* ViewRows::load(Index image) {
  load(image, rows_.data());
  return rows_.data();
}

void ViewRows::load(Index image, double* rows) const {
  const Index at = image * views_.parts * views_.dim;
  for (const double* z : {views_.z1, views_.z2}) {
    helmert_.apply(z + at, views_.dim, rows);
    rows += rank() * views_.dim;
  }
}

void ViewRows::pull_back(const double* grad_rows, double* grad_z1, double* grad_z2) const {
  for (double* grad : {grad_z1, grad_z2}) {
    std::fill_n(grad, views_.parts * views_.dim, 0.0);
    helmert_.add_adjoint(grad_rows, views_.dim, grad);
    grad_rows += rank() * views_.dim;
  }
}

}  // namespace hone::kernels
