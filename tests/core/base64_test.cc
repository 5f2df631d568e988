// SPDX-License-Identifier: Apache-2.0
#include "hone/core/base64.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hone {
namespace {

std::string decoded(std::string_view text) {
  const auto bytes = from_base64(text);
  if (!bytes) return "none";
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

// RFC 4648, section 10.
TEST(Base64, has_the_vectors_of_the_standard) {
  const std::vector<std::pair<std::string, std::string>> vectors = {{"", ""},
                                                                    {"f", "Zg=="},
                                                                    {"fo", "Zm8="},
                                                                    {"foo", "Zm9v"},
                                                                    {"foob", "Zm9vYg=="},
                                                                    {"fooba", "Zm9vYmE="},
                                                                    {"foobar", "Zm9vYmFy"},
                                                                    {"\xff\xfb\xbf", "//u/"}};
  for (const auto& [plain, text] : vectors) {
    EXPECT_EQ(to_base64(std::as_bytes(std::span(plain))), text);
    EXPECT_EQ(decoded(text), plain);
    EXPECT_EQ(decoded(text.substr(0, text.find('='))), plain) << "without padding";
  }
}

TEST(Base64, refuses_what_no_bytes_are_written_as) {
  for (const char* text : {"Z", "Zm9vY", "Zm 9v", "Zm9v\n", "Z===", "====", "=", "Zg=a",
                           "Zh==", "Zm9=", "_-8=", "Zm9v=", "\xc3\xa9"}) {
    EXPECT_FALSE(from_base64(text)) << text;
  }
}

}  // namespace
}  // namespace hone
