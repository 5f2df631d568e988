// SPDX-License-Identifier: Apache-2.0
#include "hone/core/sha256.h"

#include <gtest/gtest.h>

#include <string_view>

#include "hone/core/file_io.h"
#include "hone/core/nearest_name.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

// FIPS 180-4 examples.
TEST(Sha256, matches_published_digests) {
  const std::string_view abc = "abc";
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span(abc))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "empty", "");
  EXPECT_EQ(sha256_hex(folder.path() / "empty"),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(NearestName, has_the_least_edit_distance) {
  constexpr std::string_view kKnown[] = {"learning_rate", "weight_decay", "steps"};
  EXPECT_EQ(nearest_name("lerning_rate", kKnown), "learning_rate");
  EXPECT_EQ(nearest_name("step", kKnown), "steps");
  EXPECT_EQ(nearest_name("wait_decay", kKnown), "weight_decay");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace hone
