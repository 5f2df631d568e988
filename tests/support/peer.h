// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace hone::test {

// Other software as an oracle. HONE_PEER_PYTHON names a Python that has it (tools/setup --peers
// installs it; `make test` uses .venv-peers if it exists).

// The reason why these packages cannot be used; empty if they can.
std::string missing_peer(std::initializer_list<std::string_view> packages);

// Runs a script of the source tree and returns its output. Throws std::runtime_error if it fails.
std::string run_peer(std::string_view script, const std::vector<std::string>& arguments);

}  // namespace hone::test

// Skips the test if a package is absent: HONE_REQUIRE_PEER("torch", "transformers");
#define HONE_REQUIRE_PEER(...)                                                          \
  if (const auto missing = ::hone::test::missing_peer({__VA_ARGS__}); !missing.empty()) \
  GTEST_SKIP() << missing
