// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/core/index.h"

// The geometry of image parts: covariances of few vectors, and distances under them. Tensors z are
// the parts of one view of each image, [batch, parts, dim]. On the CPU, the kernels of kernels/paco
// compute everything in fp64. On other devices, the operators in `composed` compute in the type of
// the parts, with fp64 for small matrices. They are also the reference for tests. Gradients are
// exact to first order and need no derivative of a factorization. A second derivative throws
// Error{Unsupported}. Autocast has no effect.
namespace hone::paco {

// The number δ that is added to the diagonal of the mean covariance of an image's views, per image.
// A is the factor of that covariance.
//   Absolute  δ = floor
//   Relative  δ = max(floor, rho |A|² / dim): distances do not change when all parts are scaled,
//             so that smaller features do not reduce the loss
//   Shrink    A <- sqrt(1 - rho) A,  δ = floor + rho |A|² / dim  (Ledoit and Wolf, 2004)
enum class DeltaMode { Absolute, Relative, Shrink };

struct MetricOptions {
  DeltaMode delta = DeltaMode::Relative;
  double floor = 2e-5;  // above 0
  double rho = 1;       // at least 0; for Shrink below 1
  // If above 0 (at most 1), parts are whitened by P = L Lᵀ: the mean of the covariances over the
  // batch, plus max(floor, 0.001 tr / dim) on its diagonal. The metric of an image is pooled P + (1
  // - pooled) times its own covariance. No gradient flows to P; delta and rho are not used.
  // Requires at least two parts.
  double pooled = 0;
  bool grad = true;  // false: the metric is a constant
};

// One metric Σ = δ I + A Aᵀ per image, and the parts in the coordinates of that metric.
struct PartMetric {
  torch::Tensor z1, z2;  // [batch, parts, dim], differentiable; whitened if metrics are pooled
  torch::Tensor factor;  // Aᵀ, [batch, 2 (parts - 1), dim]
  torch::Tensor delta;   // [batch]
  torch::Tensor chol;  // L of Aᵀ A + δ I = L Lᵀ, [batch, rank, rank] in fp64, without gradient
};

// Throws Error{InvalidArgument} unless parts are two floating-point tensors [batch, parts, dim] of
// one shape, type and device.
void check_parts(const torch::Tensor& z1, const torch::Tensor& z2);

// Parts must be finite. Throws Error{InvalidArgument} like check_parts(), and for options out of
// range.
PartMetric part_metric(const torch::Tensor& z1, const torch::Tensor& z2,
                       const MetricOptions& options);

// Returns q = xᵀ Σ⁻¹ x [batch, rows] for x [batch, rows, dim] in the metric's coordinates.
torch::Tensor ridge_distance_sq(const PartMetric& metric, const torch::Tensor& x);

// Returns coordinates [batch, rows, dim + rank] in which these distances are Euclidean: sqrt(δ) Σ⁻¹
// x, then Aᵀ Σ⁻¹ x, whose squared length is q. They are linear in x, so that distances between all
// pairs of rows need only one solve per row. No gradient flows through them.
torch::Tensor ridge_coordinates(const PartMetric& metric, const torch::Tensor& x);

// sqrt(q), with gradient 0 where q is below 1e-30.
torch::Tensor root_of(const torch::Tensor& q);

enum class SocMetric { Frobenius, Stein, LogEuclidean };

// Returns the squared distance [batch] between the covariances of the two views, as defined in
// kernels/paco/cov_metric.h. Devices other than the CPU support Frobenius only.
torch::Tensor covariance_distance(SocMetric metric, const torch::Tensor& z1,
                                  const torch::Tensor& z2, double epsilon);

// Returns the squared distance [batch] between the mean covariance of the two views and
// prototypes[label], or 0 if the label is -1. prototypes are [classes, dim, dim], or [classes, dim]
// for diagonals. No gradient flows to them, and prototypes of other classes are not read. They may
// change before the backward pass.
torch::Tensor prototype_distance(SocMetric metric, const torch::Tensor& z1, const torch::Tensor& z2,
                                 double epsilon, const torch::Tensor& prototypes,
                                 const torch::Tensor& label);

namespace composed {
PartMetric part_metric(const torch::Tensor& z1, const torch::Tensor& z2,
                       const MetricOptions& options);
torch::Tensor ridge_distance_sq(const PartMetric& metric, const torch::Tensor& x);
torch::Tensor ridge_coordinates(const PartMetric& metric, const torch::Tensor& x);
torch::Tensor frobenius_distance(const torch::Tensor& z1, const torch::Tensor& z2);
torch::Tensor frobenius_prototype_distance(const torch::Tensor& z1, const torch::Tensor& z2,
                                           double epsilon, const torch::Tensor& prototypes,
                                           const torch::Tensor& label);
}  // namespace composed

}  // namespace hone::paco
