// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "hone/core/index.h"

namespace hone::bench {

// Where a server of the OpenAI API listens.
struct ServerUrl {
  std::string name{};                  // in rows
  std::string host{}, port{}, path{};  // of http://HOST:PORT/PATH; the path ends with /v1
};
// Reads "http://HOST:PORT/v1", or "NAME=http://…"; the path may be absent. Throws
// Error{InvalidArgument}.
ServerUrl read_server_url(const std::string& text);

struct StreamRequest {
  std::string model{}, prompt{}, key{};
  Index tokens = 0;  // of the answer; its end by itself is switched off
};

// What a client saw of a streamed answer, in seconds since the request was sent.
struct StreamTimes {
  std::vector<double> pieces{};  // when pieces of text came
  double end = 0;
  Index prompt_tokens = 0, tokens = 0;  // by the server's usage; else the number of pieces
  double first() const { return pieces.empty() ? end : pieces.front(); }
};

// Sends POST /completions with "stream" on a connection of its own, and waits for the end. Throws
// Error{Io} if there is no connection, and Error{Unsupported} with the answer for a status other
// than 200.
StreamTimes stream_completion(const ServerUrl& url, const StreamRequest& request);

// The id of the first model of GET /models.
std::string first_model(const ServerUrl& url, const std::string& key);

}  // namespace hone::bench
