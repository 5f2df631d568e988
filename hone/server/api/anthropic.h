// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "hone/server/api/text_service.h"
#include "hone/server/http/exchange.h"

namespace hone::server {

// POST /v1/messages and /v1/messages/count_tokens in the shapes of the Anthropic API.
void post_messages(TextService& service, const std::shared_ptr<Exchange>& exchange,
                   std::uint64_t salt);
void post_count_tokens(TextService& service, const std::shared_ptr<Exchange>& exchange,
                       std::uint64_t salt);

}  // namespace hone::server
