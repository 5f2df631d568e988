// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Computes a factor of the mean covariance of two views' parts. All matrices are row-major without
// gaps. With the mean mu_v of the parts z_vk (k = 0 … parts - 1) of view v and
//   S_v = sum_k (z_vk - mu_v)(z_vk - mu_v)^T / (parts - 1),   (S_1 + S_2) / 2 = A A^T,
// the factor is A^T. Its rows i - 1 (i = 1 … parts - 1) are the rows of the Helmert matrix times
// the parts of view 1,
//   (z_0 + … + z_{i-1} - i z_i) / sqrt(i (i + 1) 2 (parts - 1)),
// and as many rows of view 2 follow (HelmertRows). A has two columns fewer than the centered parts,
// and A^T A has no direction that is zero for every input. One part has no covariance; the factor
// then has no rows.
struct PartFactorArgs {
  Index batch = 0, parts = 0, dim = 0;
  const double* z1 = nullptr;  // [batch, parts, dim]
  const double* z2 = nullptr;
  double* factor = nullptr;  // [batch, 2 (parts - 1), dim]
};

// Throws Error{InvalidArgument} for a negative batch, or for parts or dim that are not positive.
void part_factor(const PartFactorArgs& args, Executor& executor = serial_executor());

// The adjoint of part_factor: adds the gradients with respect to z1 and z2 to the outputs.
struct PartFactorGradArgs {
  Index batch = 0, parts = 0, dim = 0;
  const double* grad_factor = nullptr;  // [batch, 2 (parts - 1), dim]
  double* grad_z1 = nullptr;            // [batch, parts, dim]
  double* grad_z2 = nullptr;
};

// Throws like part_factor().
void part_factor_grad(const PartFactorGradArgs& args, Executor& executor = serial_executor());

}  // namespace hone::kernels
