// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace hone::test {

// Other people's software as oracle. HONE_PEER_PYTHON names a Python that has it (tools/setup
// --peers; `make test` sets it to that of .venv-peers where that exists).

// Why these packages cannot be used; empty when they can.
std::string missing_peer(std::initializer_list<std::string_view> packages);

// Runs a script of the source tree and returns what it prints; std::runtime_error when it fails.
std::string run_peer(std::string_view script, const std::vector<std::string>& arguments);

}  // namespace hone::test

// Visible skip where a package is absent: HONE_REQUIRE_PEER("torch", "transformers");
#define HONE_REQUIRE_PEER(...)                                                          \
  if (const auto missing = ::hone::test::missing_peer({__VA_ARGS__}); !missing.empty()) \
  GTEST_SKIP() << missing
