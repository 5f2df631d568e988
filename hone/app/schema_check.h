// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/file/json_io.h"
#include "hone/infer/request.h"

namespace hone::app {

// Throws the Error of a schema that the request has and that is refused; reads no model. Warns, in
// one line, of keywords that are ignored.
void check_default_schema(const infer::Request& request);

// The JSON pointers of the ignored keywords, where the request may have some; otherwise null.
Json ignored_keywords(const infer::Request& request);

}  // namespace hone::app
