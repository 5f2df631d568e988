// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"
#include "hone/kernels/paco/view_rows.h"

// Distances between covariances of parts, and their gradients with respect to the parts. With Σ_v
// of TwoViews:
//   frobenius_sq       ‖Σ_1 - Σ_2‖²  (of the entries)
//   stein              ln det ½(Σ_1 + Σ_2) - ½ ln det Σ_1 Σ_2: the divergence itself, which is a
//                      squared distance (Sra, "A new metric on the manifold of kernel matrices
//                      with application to matrix geometric means", 2012)
//   log_euclidean_sq   ‖ln Σ_1 - ln Σ_2‖²  (Arsigny et al., "Log-Euclidean metrics for fast and
//                      simple calculus on diffusion tensors", 2006)
// The distance of two views costs O(parts² dim), because their matrices are ε I plus products of
// parts - 1 rows. If rounding makes a value negative, it becomes 0. If the parts of an image, or
// their squares, are not finite, its distance and gradients are NaN. All functions throw
// Error{InvalidArgument} like check_views(). Results do not depend on the number of workers.
namespace hone::kernels {

struct CovGrad {
  const double* grad_distance = nullptr;  // [batch]
  double* grad_z1 = nullptr;              // [batch, parts, dim], overwritten
  double* grad_z2 = nullptr;              // [batch, parts, dim], overwritten
};

// Writes distance [batch].
void frobenius_sq(const TwoViews& views, double* distance, Executor& executor = serial_executor());
void stein(const TwoViews& views, double* distance, Executor& executor = serial_executor());
void log_euclidean_sq(const TwoViews& views, double* distance,
                      Executor& executor = serial_executor());

void frobenius_sq_grad(const TwoViews& views, const CovGrad& grad,
                       Executor& executor = serial_executor());
void stein_grad(const TwoViews& views, const CovGrad& grad, Executor& executor = serial_executor());
void log_euclidean_sq_grad(const TwoViews& views, const CovGrad& grad,
                           Executor& executor = serial_executor());

// Prototypes: the mean covariance ½(Σ_1 + Σ_2) of each image is compared with the matrix of its
// class, and not Σ_1 with Σ_2. No gradient flows to prototypes.
struct CovPrototypes {
  Index classes = 0;
  // [classes, dim, dim], symmetric. With `diagonal`: [classes, dim], compared with the diagonal of
  // the mean covariance.
  const double* matrices = nullptr;
  const Index* label = nullptr;  // [batch]: each image's class; -1: none, distance and gradient 0
  bool diagonal = false;
};

// The distances above with dense matrices, O(dim³) per image for stein and log_euclidean_sq. These
// two need positive definite prototypes. Throws Error{InvalidArgument} if a prototype is not, or if
// a label is not in [-1, classes).
void frobenius_sq(const TwoViews& views, const CovPrototypes& prototypes, double* distance,
                  Executor& executor = serial_executor());
void stein(const TwoViews& views, const CovPrototypes& prototypes, double* distance,
           Executor& executor = serial_executor());
void log_euclidean_sq(const TwoViews& views, const CovPrototypes& prototypes, double* distance,
                      Executor& executor = serial_executor());

void frobenius_sq_grad(const TwoViews& views, const CovPrototypes& prototypes, const CovGrad& grad,
                       Executor& executor = serial_executor());
void stein_grad(const TwoViews& views, const CovPrototypes& prototypes, const CovGrad& grad,
                Executor& executor = serial_executor());
void log_euclidean_sq_grad(const TwoViews& views, const CovPrototypes& prototypes,
                           const CovGrad& grad, Executor& executor = serial_executor());

}  // namespace hone::kernels
