// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/model_io/family/family.h"
#include "hone/model_io/json_fields.h"

namespace hone::model_io {

// The attention window of each layer, as config.json gives it by sliding_window, layer_types and
// use_sliding_window; empty if no layer has one.
std::vector<Index> read_windows(const JsonFields& config, const Family& family, Index layers);

// Throws Error{Unsupported} if config.json cannot express the windows of the architecture.
void write_windows(const Architecture& a, const Family& family, Json& config);

// The windows of a family's GGUF files, which give one size: of all layers, or all but every
// period-th. Empty for a window of 0.
std::vector<Index> default_windows(const Family& family, Index window, Index layers);

// The one window of the layers that have one; 0 if none has. Throws Error{Unsupported} that names
// `where` if there are several.
Index single_window(const Architecture& a, std::string_view where);

}  // namespace hone::model_io
