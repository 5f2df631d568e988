// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hone::infer::grammar {

// A regular expression whose texts have a format of JSON Schema; nullopt for a format that is not
// enforced. Some formats allow more texts than are generated.
std::optional<std::string> pattern_of_format(std::string_view format);

}  // namespace hone::infer::grammar
