// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/file/json_io.h"
#include "hone/infer/request.h"

namespace hone::app {

// Throws an Error if the request has a schema that is refused. Reads no model. Logs one warning
// with the keywords that are ignored.
void check_default_schema(const infer::Request& request);

// The JSON pointers of the ignored keywords; null if the request has no schema or allows no ignored
// keywords.
Json ignored_keywords(const infer::Request& request);

}  // namespace hone::app
