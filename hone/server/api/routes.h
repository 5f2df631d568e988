// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/server/service.h"

namespace hone::server {

class TextService;

// What the service of a language model answers, which must outlive the routes.
std::vector<Route> text_routes(TextService& service);

}  // namespace hone::server
