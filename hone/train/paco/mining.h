// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/paco/mine_negative.h"
#include "hone/train/paco/geometry.h"

namespace hone::paco {

struct MiningOptions {
  kernels::MineMode mode = kernels::MineMode::SemiHard;
  bool mask_owner = true, mask_class = true;
  Index top_m = 0;
  bool draws_images = false;  // negatives are parts of one drawn image per image, shared by all
};

struct MinedNegatives {
  torch::Tensor row;    // int64 [batch, parts], of the parts of view 1 and then of view 2
  torch::Tensor found;  // bool [batch, parts]; row is 0 if false
};

// Finds the negative of each part of view 1 among the parts of both views, without gradient, as
// kernels::mine_negative defines it. positive_q [batch, parts]; targets int64 [batch]. pool_images
// int64 [batch] replaces the images that draws_images draws uniformly from the others. Devices
// other than the CPU use operators, which store all distances [batch, parts, pool] at once. There,
// top_m throws Error{Unsupported}.
MinedNegatives mine_negatives(const PartMetric& metric, const torch::Tensor& positive_q,
                              const torch::Tensor& targets, const torch::Tensor& pool_images,
                              const MiningOptions& options);

namespace composed {
MinedNegatives mine_negatives(const PartMetric& metric, const torch::Tensor& positive_q,
                              const torch::Tensor& targets, const torch::Tensor& pool_images,
                              const MiningOptions& options);
}  // namespace composed

}  // namespace hone::paco
