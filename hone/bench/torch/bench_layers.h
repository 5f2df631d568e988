// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/bench/bench_run.h"
#include "hone/bench/torch/layer_plan.h"

namespace hone::bench {

// Compares factored layers with the dense layer that they approximate. Its weight is seeded
// Gaussian.
//
// There is a case "4096x4096/b64/forward" for each shape, batch and pass. Its contestants are dense
// and dense_hone, all layers of the modes and, for sketched ones, the formula of their publication
// (bmm). Each row has
//   - the numbers of the layer: trainable_count; stored_count, with the signs that hone draws from
//     a seed; stored_bytes of hone's file;
//   - flops of the pass, and break_even (FLOPs and stored numbers over those of the dense layer);
//   - rel_error of its fitted weight;
//   - the memory of the pass, measured and predicted.
// Ratios are first over the faster dense layer, then over bmm. A grid also has the geometric mean
// of the ratios over bmm. The pass "train" is forward and backward with the gradients of weights
// and input.
//
// Cases ".../memory" count the bytes of a pass instead of timing it: weights, activations (input,
// values for the backward pass, output) and gradients.
//
// For a step, see bench_layer_step.h.
void bench_layers(const BenchLayersOptions& options, BenchRun& run);

}  // namespace hone::bench
