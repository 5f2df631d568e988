// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "hone/core/index.h"
#include "hone/kernels/paco/helmert.h"

namespace hone::kernels {

// The parts of two views of each image, which define the covariances
//   Σ_v = ε I + Σ_k (z_v[k] - mean z_v)ᵀ (z_v[k] - mean z_v) / max(1, parts - 1)   [dim, dim],
// with the parts as rows and the mean over the parts of one image and view.
struct TwoViews {
  Index batch = 0, parts = 0, dim = 0;
  const double* z1 = nullptr;  // [batch, parts, dim]
  const double* z2 = nullptr;  // [batch, parts, dim]
  double epsilon = 0;          // positive and finite
};

// Throws Error{InvalidArgument} that begins with [op] for a negative batch, for parts or dim that
// are not positive, or for an epsilon that is not positive and finite.
void check_views(std::string_view op, const TwoViews& views);

// Converts the parts of one image to few rows that represent the covariances: the Helmert rows B_v
// of each view with the divisor parts - 1, so that Σ_v = ε I + B_vᵀ B_v. Unlike centered parts,
// these rows have no common null direction.
class ViewRows {
 public:
  explicit ViewRows(const TwoViews& views);

  // Rows of each view: parts - 1.
  Index rank() const { return views_.parts - 1; }
  // Returns B_1 and then B_2 of an image, [2 rank, dim], valid until the next call.
  const double* load(Index image);
  // Like load(), but writes to memory of the caller.
  void load(Index image, double* rows) const;
  // Computes the gradients of an image's parts, each [parts, dim], from a gradient with respect to
  // B_1 over B_2.
  void pull_back(const double* grad_rows, double* grad_z1, double* grad_z2) const;

 private:
  TwoViews views_;
  HelmertRows helmert_;
  std::vector<double> rows_;
};

}  // namespace hone::kernels
