// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/file/json_io.h"
#include "hone/server/http/exchange.h"

namespace hone::server {

// One line of JSON. Bytes that are no UTF-8 become U+FFFD.
inline std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Throws Error{CorruptFile} for a body that is not JSON.
inline Json parse_body(const Exchange& exchange) {
  return parse_json(exchange.request().body, "the body");
}

// Answers with a document. `ignored` names fields of the request for X-Hone-Ignored.
inline void respond_json(Exchange& exchange, const Json& json, const std::string& ignored = {}) {
  HttpResponse response{.body = json_text(json) + "\n"};
  if (!ignored.empty()) response.fields.add("X-Hone-Ignored", ignored);
  exchange.respond(response);
}

// Begins an answer of server-sent events.
inline void begin_events(Exchange& exchange, const std::string& ignored) {
  HttpFields fields{{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
  if (!ignored.empty()) fields.add("X-Hone-Ignored", ignored);
  exchange.begin_stream("text/event-stream", fields);
}

}  // namespace hone::server
