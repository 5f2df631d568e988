// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/bench/bench_run.h"
#include "hone/bench/torch/layer_plan.h"

namespace hone::bench {

// Factored layers beside the dense layer that they stand for, whose weight is seeded Gaussian.
//
// Case "4096x4096/b64/forward" for each shape, batch and pass: dense and dense_hone, all layers of
// the modes and, for sketched ones, the formula of their publication (bmm). Each row has the
// layer's numbers (trainable_count; stored_count, with the signs that hone draws from a seed;
// stored_bytes of hone's file), flops of the pass, break_even (FLOPs and stored numbers over those
// of the dense layer), rel_error of its fitted weight, and the memory of the pass as measured and
// predicted.
// Ratios are over the faster one of the dense layers, then over bmm; a grid also has their
// geometric means. A pass "train" is forward and backward with the gradients of weights and input.
//
// Cases ".../memory" count a pass instead of timing it: bytes of weights, of activations (input,
// what the backward pass needs, output) and of gradients.
//
// With a step, see bench_layer_step.h.
void bench_layers(const BenchLayersOptions& options, BenchRun& run);

}  // namespace hone::bench
