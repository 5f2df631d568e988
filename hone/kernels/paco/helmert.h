// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/index.h"

namespace hone::kernels {

// The Helmert rows of the parts of one image and view, divided by the root of a divisor:
//   row i (i = 1 … parts - 1) = (z_0 + … + z_{i-1} - i z_i) / sqrt(i (i + 1) divisor).
// Without the divisor, they transform the parts by an orthonormal basis of the space orthogonal to
// their mean (Lancaster, "The Helmert Matrices", American Mathematical Monthly 72, 1965). The sums
// run over differences to the first part, so a mean far from zero costs no precision.
class HelmertRows {
 public:
  // `parts` must be positive, and `divisor` too unless parts is 1.
  HelmertRows(Index parts, Index divisor);

  Index count() const { return parts_ - 1; }
  // rows [parts - 1, dim] of z [parts, dim].
  void apply(const double* z, Index dim, double* rows) const;
  // Adds the gradient with respect to z, from the gradient with respect to the rows.
  void add_adjoint(const double* grad_rows, Index dim, double* grad_z) const;

 private:
  Index parts_;
  std::vector<double> scales_;  // [parts]; 0 at 0
};

}  // namespace hone::kernels
