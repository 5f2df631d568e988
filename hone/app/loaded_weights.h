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

// How a sentence goes on after the name of one tensor, and after several.
struct KeptVerb {
  std::string_view one, several;
};
// Lines on the rows of kept_json(): one for each type and reason ("24 tensors stay f16: …"), or one
// for each tensor.
std::vector<std::string> describe_kept(const Json& kept, const KeptVerb& verb, bool each);

// How the weights of an open model were loaded: {"format": "file", "q8" or "q4", "mapped": whether
// they come from the cache of packed weights, "kept": [{name, dtype, reason}] of the matrices that
// the format did not quantize}.
Json weights_json(const infer::ModelInfo& info, infer::WeightFormat format);

// Logs the matrices that were kept, in a line for each reason (at LogLevel::Debug, for each
// matrix), and warns of a KV cache that holds less than the context.
void log_loaded(const infer::ModelInfo& info);

}  // namespace hone::app
