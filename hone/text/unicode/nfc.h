// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace hone::text {

// Unicode normalization form C (UAX #15) of the Unicode version named in nfc_tables.cc. Invalid
// UTF-8 stays as it is, and nothing composes across it.
std::string to_nfc(std::string_view text);

}  // namespace hone::text
