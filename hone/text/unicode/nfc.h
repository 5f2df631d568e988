// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace hone::text {

// Unicode normalization form C (UAX #15) of the version named in nfc_tables.cc. Bytes that are no
// valid UTF-8 stay as they are, and nothing composes across them.
std::string to_nfc(std::string_view text);

}  // namespace hone::text
