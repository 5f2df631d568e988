// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/bench/bench_run.h"

namespace hone::bench {

// A ResNet. The time of the losses is compared with its training step.
struct StepNetwork {
  std::string name;
  Index side = 0;   // side of its images
  double most = 0;  // limit for the share of the whole loss; 0: none
  Index width = 0;  // channels of the stem; 0: the default of `name`
};

struct BenchPacoOptions {
  std::vector<Index> batches{8, 32, 128, 256};
  Index parts = 4, dim = 64;
  std::vector<std::string> against{"dense", "operators"};  // also loops
  int threads = 0;          // LibTorch threads, for all sides; 0: usable_cpus()
  bool whole_step = false;  // also measures steps of `networks`
  std::vector<StepNetwork> networks{{"resnet18", 224, 0.01}, {"resnet20", 64, 0.05}};
};

// Times forward and backward passes on seeded data.
//
// Case "b32/part_contrast" for each batch, in fp64: the loss part_contrast with a pool of all 2
// batch parts rows, by hone and by
//   dense      one dim x dim Cholesky factorization per image and triangular solves of the whole
//              pool, with autograd through both
//   operators  hone's formulation by LibTorch's operators
// Case "b32/loops" for each batch, if loops are asked for: the same loss, by hone and by
//   loops      one solve per pair of anchor and row; skipped for more than 32 images
// Rows have loss, and rows of other sides have loss_difference from hone's. hone's rows have
// mining_bytes, the peak allocation while the negatives are chosen: tensors as a MemoryMeter counts
// them and kernels::mine_negative_bytes, also alone as mining_kernel_bytes. They also have
// dense_pool_bytes, the bytes of the pool under the metric of each image, [batch, rows, dim], which
// dense stores.
//
// Cases "growth/part_contrast" and "growth/losses": hone at all batches in turn, with quotients of
// each batch over the one before. losses is PacoLoss: matching, part contrast, and alignment with
// prototypes.
//
// With whole_step, a case "step of resnet18 at 224" for each network, with random images and seeded
// weights, in fp32 as in training:
//   step        cross entropy of two views of 32 images, one after the other
//   whole loss  everything that part contrast adds, from the two last maps to their gradients
//   sampling    the part of it that finds the parts and projects them
//   losses      the part of it that is PacoLoss
// and quotients of the last three over the step.
void bench_paco(const BenchPacoOptions& options, BenchRun& run);

}  // namespace hone::bench
