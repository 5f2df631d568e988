// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "hone/server/api/text_service.h"
#include "hone/server/http/exchange.h"

namespace hone::server {

// POST /v1/responses of the OpenAI API. Nothing is kept between requests, so that
// previous_response_id is refused.
void post_responses(TextService& service, const std::shared_ptr<Exchange>& exchange,
                    std::uint64_t salt);

}  // namespace hone::server
