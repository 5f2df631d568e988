// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/bench/bench_run.h"
#include "hone/bench/torch/layer_plan.h"
#include "hone/model_io/architecture.h"

namespace hone::bench {

// Tokens of each sequence in a step.
inline constexpr Index kStepPositions = 128;

// Times training steps (forward, backward, AdamW, f32) of a language model with random weights. The
// model is dense or has low-rank layers, of at most half the bytes, in place of the products of its
// MLPs; the two run in turn. There is a case "step/b4x128" for each batch of sequences. Rows have
// tokens_per_s, parameters and mlp_bytes, the bytes of the products of the MLPs in a file. The time
// does not depend on how factors were fitted, so these are random, too.
void bench_layer_step(const model_io::Architecture& architecture, const BenchLayersOptions& options,
                      BenchRun& run);

}  // namespace hone::bench
