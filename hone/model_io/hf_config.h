// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "hone/core/file/json_io.h"
#include "hone/model_io/architecture.h"

namespace hone::model_io {

// Reads an architecture from config.json and generation_config.json (an empty object if there is
// none). Does not validate it. Throws Error{Unsupported} that names the known model classes for
// other ones.
Architecture read_hf_config(const Json& config, const Json& generation, const std::string& where);

// The config.json of an architecture; `dtype` is torch's name ("float32"). Throws
// Error{Unsupported} for architectures that config.json cannot express (divisors from a GGUF file,
// partial rotation).
Json write_hf_config(const Architecture& architecture, std::string_view dtype);

// Makes it the config.json of hone's artifact of this format version. Its class and model_type are
// unknown to other programs, which would take the codes for missing weights and make some up.
void mark_as_artifact(Json& config, std::string_view format);

}  // namespace hone::model_io
