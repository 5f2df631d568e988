// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "hone/server/api/text_service.h"
#include "hone/server/http/exchange.h"

namespace hone::server {

// POST /v1/embeddings: the final hidden states of each input, of its last token or the mean of all
// (`pooling`: "last", "mean"), with length 1, as numbers or as base64 of f32 in little endian.
void post_embeddings(TextService& service, const std::shared_ptr<Exchange>& exchange,
                     std::uint64_t salt);

}  // namespace hone::server
