// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "hone/infer/request.h"

namespace hone::infer {

using PrefixSecret = std::array<std::uint64_t, 2>;
using PrefixKey = std::array<std::uint64_t, 2>;

// SipHash-2-4 with a result of 128 bits (Aumasson and Bernstein, "SipHash: a fast short-input PRF",
// INDOCRYPT 2012) of the words' bytes in little-endian order.
PrefixKey siphash128(const PrefixSecret& secret, std::span<const std::uint64_t> words);

// The key of the empty prefix of a tenant.
PrefixKey root_key(const PrefixSecret& secret, std::uint64_t salt);
// The key of a prefix that ends with the 32 tokens `ids`, from the key of the prefix before them.
PrefixKey extend_key(const PrefixSecret& secret, const PrefixKey& parent,
                     std::span<const TokenId> ids);

}  // namespace hone::infer
