// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/file/json_io.h"
#include "hone/model_io/family/family.h"
#include "hone/model_io/json_fields.h"

namespace hone::model_io {

// Reads a.rope and, in families that have one, a.window_rope from config.json in both styles:
// rope_theta with rope_scaling, and rope_parameters. Needs a.context and a.head_dim. Throws
// Error{CorruptFile} for contradictions, Error{Unsupported} for other kinds of scaling.
void read_hf_rope(const JsonFields& config, const Family& family, Architecture& a);

// Writes the older style, which every version of transformers reads. Throws Error{Unsupported} for
// a rotation that config.json cannot express.
void write_hf_rope(const Architecture& a, const Family& family, Json& config);

}  // namespace hone::model_io
