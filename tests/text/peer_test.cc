// SPDX-License-Identifier: Apache-2.0
// Ids against other people's tokenizers.
#include <gtest/gtest.h>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/text/bpe_trainer.h"
#include "hone/text/format/tokenizer_json.h"
#include "hone/text/load_tokenizer.h"
#include "hone/text/pre_tokenizer.h"
#include "hone/text/unicode/nfc.h"
#include "hone/text/unicode/splitter.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::text {
namespace {

namespace fs = std::filesystem;

class Peer : public testing::Test {
 protected:
  void SetUp() override { HONE_REQUIRE_PEER("tokenizers", "sentencepiece", "transformers"); }

  Json ask(std::string_view job, const fs::path& file) const {
    const fs::path out = folder_.path() / "out.json";
    test::run_peer("tests/text/peer_ids.py", {std::string(job), file.string(), out.string()});
    return read_json_file(out);
  }

  static void expect_ids(const Tokenizer& tokenizer, const Json& answer,
                         const EncodeOptions& options) {
    ASSERT_GE(answer["texts"].size(), 100'000u);
    int differ = 0;
    for (std::size_t i = 0; i < answer["texts"].size(); ++i) {
      const auto& text = answer["texts"][i].get_ref<const std::string&>();
      const auto expected = answer["ids"][i].get<test::Ids>();
      const test::Ids ids = tokenizer.encode(text, options);
      if (ids != expected && ++differ <= 5) {
        EXPECT_EQ(ids, expected) << answer["texts"][i].dump(-1, ' ', true);
      }
    }
    EXPECT_EQ(differ, 0) << "of " << answer["texts"].size();
  }

  void expect_auto_tokenizer_agrees(const fs::path& path) const {
    const auto tokenizer = load_tokenizer_or_throw(path);
    const fs::path folder = folder_.path() / "written";
    fs::create_directories(folder);
    write_json_file(folder / "tokenizer.json", to_tokenizer_json(tokenizer->vocabulary()));
    write_json_file(folder / "tokenizer_config.json",
                    to_tokenizer_config_json(tokenizer->vocabulary()));
    const Json answer = ask("auto", folder);
    expect_ids(*tokenizer, answer, {.parse_special = true});
    expect_ids(*load_tokenizer_or_throw(folder), answer, {.parse_special = true});
  }

  test::TemporaryFolder folder_;
};

TEST_F(Peer, tokenizers_gives_the_same_gpt2_ids) {
  HONE_REQUIRE_TEST_DATA(vocab, "tokenizers/gpt2_vocab.json");
  expect_ids(*load_tokenizer_or_throw(vocab), ask("gpt2", vocab), {});
}

TEST_F(Peer, sentencepiece_gives_the_same_ids) {
  for (const char* name : {"tokenizers/llama2_tokenizer.model", "lm/tok512.model"}) {
    HONE_REQUIRE_TEST_DATA(model, name);
    expect_ids(*load_tokenizer_or_throw(model), ask("sentencepiece", model), {.add_bos = false});
  }
}

TEST_F(Peer, transformers_gives_the_same_ids_from_what_hone_writes) {
  for (const char* name : {"tokenizers/gpt2_vocab.json", "tokenizers/llama2_tokenizer.model",
                           "lm/tok512.model", "lm/tok512.bin"}) {
    HONE_REQUIRE_TEST_DATA(path, name);
    SCOPED_TRACE(name);
    expect_auto_tokenizer_agrees(path);
  }
}

TEST_F(Peer, tokenizers_gives_the_same_ids_of_a_tokenizer_like_gemma_s) {
  const fs::path folder = folder_.path() / "gemma";
  fs::create_directories(folder);
  const Json answer = ask("gemma", folder);
  expect_ids(*load_tokenizer_or_throw(folder), answer, {.add_bos = false, .parse_special = true});
}

// As the tokenizer.json of models with the vocabularies of OpenAI have it.
TEST_F(Peer, tokenizers_gives_the_same_ids_if_it_removes_what_lies_between_matches) {
  for (const char* name : {"o200k", "cl100k", "llama3", "tekken"}) {
    SCOPED_TRACE(name);
    const fs::path folder = folder_.path() / name;
    fs::create_directories(folder);
    const Json answer = ask(concat("removed-", name), folder);
    ASSERT_EQ(
        read_json_file(folder / "tokenizer.json")["pre_tokenizer"]["pretokenizers"][0]["behavior"],
        "Removed");
    expect_ids(*load_tokenizer_or_throw(folder), answer, {.add_bos = false});
  }
}

TEST_F(Peer, tokenizers_cuts_texts_alike_with_the_expressions_as_published) {
  const std::pair<const char*, const char*> names[] = {
      {"tekken", "tekken"}, {"gpt-4o", "o200k"}, {"llama-bpe", "llama3"}};
  for (const auto& [pre, published] : names) {
    const Json answer = ask(concat("split-", published), "-");
    ASSERT_GE(answer["texts"].size(), 100'000u);
    Vocabulary v;
    set_pre_tokenizer(v, pre, "test");
    ASSERT_TRUE(v.further_patterns.empty());
    const Splitter splitter(v.pattern, "test");
    int differ = 0;
    for (std::size_t i = 0; i < answer["texts"].size(); ++i) {
      std::vector<std::string> parts;
      splitter.split(answer["texts"][i].get_ref<const std::string&>(),
                     [&](std::string_view part) { parts.emplace_back(part); });
      const auto expected = answer["ids"][i].get<std::vector<std::string>>();
      if (parts != expected && ++differ <= 5) {
        EXPECT_EQ(parts, expected) << pre << " " << answer["texts"][i].dump(-1, ' ', true);
      }
    }
    EXPECT_EQ(differ, 0) << pre << " of " << answer["texts"].size();
  }
}

TEST_F(Peer, tokenizers_learns_the_same_merges) {
  for (const Index size : {257, 2048, 8192}) {
    const Json answer = ask("train", std::to_string(size));
    std::vector<std::string_view> texts;
    for (const Json& text : answer["texts"]) {
      texts.push_back(text.get_ref<const std::string&>());
    }
    const Vocabulary v = train_byte_level_bpe(texts, {.vocab_size = size, .min_count = 1});
    ASSERT_EQ(v.merges.size(), answer["merges"].size());
    for (std::size_t i = 0; i < v.merges.size(); ++i) {
      const Json& merge = answer["merges"][i];
      ASSERT_EQ(v.merges[i].first, merge[0].get<std::string>()) << "merge " << i;
      ASSERT_EQ(v.merges[i].second, merge[1].get<std::string>()) << "merge " << i;
    }
    for (const auto& [piece, id] : answer["vocab"].items()) {
      ASSERT_EQ(v.pieces[id.get<std::size_t>()], piece);
    }
  }
}

TEST_F(Peer, python_composes_the_same_characters) {
  const Json answer = ask("nfc", "-");
  ASSERT_GE(answer["texts"].size(), 100'000u);
  for (std::size_t i = 0; i < answer["texts"].size(); ++i) {
    ASSERT_EQ(to_nfc(answer["texts"][i].get_ref<const std::string&>()),
              answer["ids"][i].get_ref<const std::string&>());
  }
}

}  // namespace
}  // namespace hone::text
