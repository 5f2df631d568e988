// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "hone/server/api/service.h"
#include "hone/server/http/exchange.h"

namespace hone::server {

// Handles a request, now or later. `salt` is the tenant. What it throws is the answer.
using Handler = void (*)(Service& service, const std::shared_ptr<Exchange>& exchange,
                         std::uint64_t salt);

struct Route {
  std::string_view method, path;
  Handler handle;
};
// The routes that need a key.
std::span<const Route> routes();

}  // namespace hone::server
