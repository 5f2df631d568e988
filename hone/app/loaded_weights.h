// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/infer/model_info.h"
#include "hone/infer/weight_options.h"
#include "hone/model_io/write_model.h"

namespace hone::app {

// [{name, dtype, reason}]
Json kept_json(std::span<const model_io::KeptTensor> kept);

// The end of a sentence about one tensor, and about several.
struct KeptVerb {
  std::string_view one, several;
};
// Describes the rows of kept_json(): one line for each type and reason ("24 tensors stay f16: …")
// or, with `each`, one line for each tensor.
std::vector<std::string> describe_kept(const Json& kept, const KeptVerb& verb, bool each);

// How the weights of an open model were loaded: {"format": "file", "q8" or "q4", "mapped": whether
// they come from the cache of packed weights, "kept": [{name, dtype, reason}] of the matrices that
// the format did not quantize}.
Json weights_json(const infer::ModelInfo& info, infer::WeightFormat format);

// Logs the matrices that were kept, in one line for each reason (for each matrix at
// LogLevel::Debug). Warns if the KV cache is too small for the context.
void log_loaded(const infer::ModelInfo& info);

}  // namespace hone::app
