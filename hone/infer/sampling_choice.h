// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "hone/core/file/json_io.h"
#include "hone/infer/request.h"

namespace hone::infer {

// The parameters that a user or a client chose. Others come from the model's generation_config.json
// or, if absent there, from SamplingParams.
struct SamplingChoice {
  std::optional<float> temperature{}, top_p{}, min_p{}, repetition_penalty{};
  std::optional<Index> top_k{};
};

// Sets each parameter of `sampling` to the choice or, if absent, to the model's default. If both
// are absent, the value remains. do_sample = false in generation_config.json means temperature 0.
// Ignores defaults that are not numbers, and throws Error{CorruptFile} for a number that validate()
// would refuse. The result still needs validate().
SamplingParams resolve_sampling(SamplingParams sampling, const SamplingChoice& choice,
                                const Json& generation_defaults);

}  // namespace hone::infer
