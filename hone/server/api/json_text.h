// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/file/json_io.h"

namespace hone::server {

// One line of JSON. Bytes that are no UTF-8 become U+FFFD.
inline std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hone::server
