// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/bench/bench_run.h"

namespace hone::bench {

struct BenchPacoOptions {
  std::vector<Index> batches{8, 32, 128};
  Index parts = 4, dim = 64;
  std::vector<std::string> against{"dense", "operators"};  // also loops
  int threads = 0;  // of LibTorch's pool, for all sides; 0: usable_cpus()
};

// Forward and backward passes in fp64 on the same seeded parts, for each batch. Case
// "b32/part_contrast": the loss part_contrast with all 2 batch parts rows as pool, by hone and by
//   dense      one dim x dim Cholesky factorization per image and triangular solves of the whole
//              pool, with autograd through both
//   operators  hone's formulation by LibTorch's operators
//   loops      one solve per pair of anchor and row; not for more than 32 images
// Case "b32/whole_loss": PacoLoss, which adds matching, alignment and prototypes, by hone alone.
// Rows carry loss, and those of other sides loss_difference from hone's.
void bench_paco(const BenchPacoOptions& options, BenchRun& run);

}  // namespace hone::bench
