// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/server/api/text_service.h"
#include "hone/server/http/exchange.h"

namespace hone::server {

// The routes of the OpenAI API that generate. They answer later; what they throw is the answer.
// `salt` is the tenant.
void post_completions(TextService& service, const std::shared_ptr<Exchange>& exchange,
                      std::uint64_t salt);
void post_chat_completions(TextService& service, const std::shared_ptr<Exchange>& exchange,
                           std::uint64_t salt);

}  // namespace hone::server
