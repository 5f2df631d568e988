// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/json_io.h"
#include "hone/infer/model_info.h"
#include "hone/infer/weight_options.h"

namespace hone::app {

// How the weights of an open model were loaded: {"format": "file", "q8" or "q4", "mapped": whether
// they come from the cache of packed weights, "kept": [{name, dtype, reason}] of the matrices that
// the format did not quantize}.
Json weights_json(const infer::ModelInfo& info, infer::WeightFormat format);

// Logs the matrices that were kept, and warns of a KV cache that holds less than the context.
void log_loaded(const infer::ModelInfo& info);

}  // namespace hone::app
