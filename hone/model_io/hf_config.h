// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "hone/core/json_io.h"
#include "hone/model_io/architecture.h"

namespace hone::model_io {

// config.json and generation_config.json (an empty object where there is none) as an architecture;
// not yet validated. Error{Unsupported} for other model classes, naming the ones known.
Architecture read_hf_config(const Json& config, const Json& generation, const std::string& where);

// The config.json of an architecture; `dtype` is torch's name ("float32").
// Error{Unsupported} for what config.json cannot express (divisors from a GGUF file, partial
// rotation).
Json write_hf_config(const Architecture& architecture, std::string_view dtype);

}  // namespace hone::model_io
