// SPDX-License-Identifier: Apache-2.0
#include "hone/app/tokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/core/error.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

TEST(Tokenize, opens_a_vocabulary_gguf_and_gives_ids_pieces_and_bytes) {
  HONE_REQUIRE_TEST_DATA(path, "tokenizers/ggml-vocab-gpt-2.gguf");
  const auto tokenizer = open_any_tokenizer(path);
  const Json json = tokenize(*tokenizer, "Hello wörld", {});
  EXPECT_EQ(json["tokens"], (std::vector<int>{15496, 266, 30570, 335}));
  EXPECT_EQ(json["pieces"], (std::vector<std::string>{"Hello", "Ġw", "Ã¶r", "ld"}));
  EXPECT_EQ(json["bytes"], 12);
  const Json back = detokenize(*tokenizer, json["tokens"].get<std::vector<text::TokenId>>(), false);
  EXPECT_EQ(back["text"], "Hello wörld");
  EXPECT_EQ(back["bytes"], 12);
}

TEST(Tokenize, tells_a_llama2c_model_from_its_tokenizer) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(vocabulary, "lm/tok512.bin");
  for (const auto& path : {model, vocabulary}) {
    const Json json = tokenize(*open_any_tokenizer(path), "Once upon a time", {});
    EXPECT_EQ(json["tokens"], (std::vector<int>{1, 403, 407, 261, 378})) << path;
  }
}

TEST(Tokenize, shows_bytes_that_are_no_text_as_replacements) {
  HONE_REQUIRE_TEST_DATA(path, "lm/tok512.bin");
  const Json json = detokenize(*open_any_tokenizer(path), {1, 3 + 0xC3, 3 + 'a', 2}, true);
  EXPECT_EQ(json["text"],
            "<s>\xEF\xBF\xBD"
            "a</s>");
  EXPECT_EQ(json["bytes"], 9);
}

TEST(Tokenize, reads_lists_of_ids) {
  using Ids = std::vector<text::TokenId>;
  EXPECT_EQ(parse_token_ids("[1, 22,\n 3]"), (Ids{1, 22, 3}));
  EXPECT_EQ(parse_token_ids(" 1 22 3 "), (Ids{1, 22, 3}));
  EXPECT_EQ(parse_token_ids(""), Ids());
  for (const char* bad : {"1 x", "1.5", "99999999999", "0x3"}) {
    EXPECT_THROW(parse_token_ids(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace hone::app
