// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"
#include "hone/infer/model/weights.h"
#include "hone/infer/weight_options.h"

namespace hone::infer {

// Packs the weights of a model, or maps them from the cache of packed weights. If the cache cannot
// be used (it is for another model, damaged or not writable), logs a warning and packs the weights
// again. While another process packs the same model into the cache, waits for it, but only for some
// minutes. `file` must outlive the result. Throws what pack_weights() throws, and
// Error{CorruptFile} if the model changes meanwhile.
ModelWeights load_weights(const model_io::ModelFile& file, const WeightOptions& options,
                          Executor& executor);

}  // namespace hone::infer
