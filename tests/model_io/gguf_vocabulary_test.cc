// SPDX-License-Identifier: Apache-2.0
// Vocabularies of GGUF files that other programs wrote: names of splitters, ids of special tokens.
#include "hone/model_io/gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/text/pre_tokenizer.h"
#include "tests/model_io/tiny_gguf.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::model_io {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<std::string>;
using MoreKeys = std::function<void(GgufWriter&)>;

constexpr const char* kPreKey = "tokenizer.ggml.pre";

// Stored as i32, as converters write the id of no token.
void set_signed(GgufWriter& writer, std::string_view key, std::int32_t value) {
  writer.set_value({.key = key,
                    .type = GgufValueType::I32,
                    .bytes = std::as_bytes(std::span<const std::int32_t>(&value, 1))});
}

class GgufVocabulary : public testing::Test {
 protected:
  text::Vocabulary read(const Tokens& tokens, const MoreKeys& more_keys = {}) {
    const auto path = folder_.path() / "v.gguf";
    GgufWriter writer(path);
    writer.set_string("tokenizer.ggml.model", "gpt2");
    writer.set_strings("tokenizer.ggml.tokens", tokens);
    writer.set_strings("tokenizer.ggml.merges", Tokens{"a b"});
    if (more_keys) more_keys(writer);
    writer.commit();
    const MmapFile file(path);
    testing::internal::CaptureStderr();
    text::Vocabulary v = read_gguf_vocabulary(parse_gguf(file.bytes(), "v.gguf"), "v.gguf");
    std::fflush(stderr);
    warnings_ = testing::internal::GetCapturedStderr();
    return v;
  }
  text::Vocabulary read_with_pre(Tokens more_tokens, const char* pre) {
    Tokens tokens{"a", "b", "ab"};
    tokens.insert(tokens.end(), more_tokens.begin(), more_tokens.end());
    return read(tokens, [&](GgufWriter& writer) {
      if (pre != nullptr) writer.set_string(kPreKey, pre);
    });
  }

  test::TemporaryFolder folder_;
  std::string warnings_;  // of the last read()
};

TEST_F(GgufVocabulary, a_file_that_does_not_name_its_splitter_is_known_by_its_special_tokens) {
  const Tokens llama{"<|begin_of_text|>", "<|eot_id|>"};
  const Tokens qwen{"<|im_start|>", "<|endoftext|>", "<|fim_prefix|>"};
  for (const char* pre : {static_cast<const char*>(nullptr), "default"}) {
    const text::Vocabulary llama3 = read_with_pre(llama, pre);
    EXPECT_EQ(llama3.pattern, text::kLlama3Pattern);
    EXPECT_TRUE(llama3.ignore_merges);
    EXPECT_FALSE(llama3.nfc);
    EXPECT_EQ(warnings_, "");
    const text::Vocabulary qwen2 = read_with_pre(qwen, pre);
    EXPECT_EQ(qwen2.pattern, text::kQwen2Pattern);
    EXPECT_FALSE(qwen2.ignore_merges);
    EXPECT_TRUE(qwen2.nfc);
    EXPECT_EQ(warnings_, "");
    // Each of the tokens is needed.
    for (const Tokens& all : {llama, qwen}) {
      for (std::size_t absent = 0; absent < all.size(); ++absent) {
        Tokens some = all;
        some.erase(some.begin() + static_cast<std::ptrdiff_t>(absent));
        EXPECT_EQ(read_with_pre(some, pre).pattern, text::kGpt2Pattern) << all[absent];
        EXPECT_THAT(warnings_, HasSubstr(kPreKey)) << all[absent];
        EXPECT_THAT(warnings_, HasSubstr("v.gguf"));
        EXPECT_EQ(std::ranges::count(warnings_, '\n'), 1) << warnings_;
      }
    }
  }
}

TEST_F(GgufVocabulary, a_name_counts_more_than_the_special_tokens) {
  const Tokens llama{"<|begin_of_text|>", "<|eot_id|>"};
  EXPECT_EQ(read_with_pre(llama, "gpt-2").pattern, text::kGpt2Pattern);
  EXPECT_EQ(warnings_, "");
  EXPECT_EQ(read_with_pre(llama, "qwen2").pattern, text::kQwen2Pattern);
  EXPECT_EQ(read_with_pre({}, "llama-bpe").pattern, text::kLlama3Pattern);
}

TEST_F(GgufVocabulary, the_splitter_of_qwen_normalizes_under_each_name_unless_the_file_denies_it) {
  for (const char* pre : {"qwen2", "deepseek-r1-qwen", "megrez"}) {
    EXPECT_TRUE(read_with_pre({}, pre).nfc) << pre;
    const auto denied = read({"a", "b", "ab"}, [&](GgufWriter& writer) {
      writer.set_string(kPreKey, pre);
      writer.set_boolean("hone.tokenizer.nfc", false);
    });
    EXPECT_FALSE(denied.nfc) << pre;
  }
  for (const char* pre : {"gpt-2", "llama-bpe", "dbrx", "smollm", "tekken", "gpt-4o"}) {
    EXPECT_FALSE(read_with_pre({}, pre).nfc) << pre;
  }
}

// As llama.cpp spells them.
TEST_F(GgufVocabulary, empty_pieces_get_names) {
  const text::Vocabulary v = read({"a", "", "b", "", "ab"}, [](GgufWriter& writer) {
    writer.set_string(kPreKey, "gpt-2");
    writer.set_integers("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 5, 1, 1, 1});
  });
  EXPECT_THAT(v.pieces, testing::ElementsAre("a", "[EMPTY_1]", "b", "[EMPTY_3]", "ab"));
  EXPECT_EQ(v.types[1], text::TokenType::Unused);
  EXPECT_THAT(text::make_tokenizer(v)->encode("ab"), testing::ElementsAre(4));
}

TEST_F(GgufVocabulary, ids_of_special_tokens_that_name_no_token_are_left_out) {
  struct Id {
    const char* key;
    std::optional<text::TokenId> text::Vocabulary::*member;
  };
  const Id ids[] = {{"tokenizer.ggml.bos_token_id", &text::Vocabulary::bos},
                    {"tokenizer.ggml.eos_token_id", &text::Vocabulary::eos},
                    {"tokenizer.ggml.unknown_token_id", &text::Vocabulary::unknown},
                    {"tokenizer.ggml.padding_token_id", &text::Vocabulary::padding}};
  const auto read_with = [&](const MoreKeys& set_id) {
    return read({"a", "b", "ab"}, [&](GgufWriter& writer) {
      writer.set_string(kPreKey, "gpt-2");
      writer.set_boolean("tokenizer.ggml.add_bos_token", true);
      writer.set_boolean("tokenizer.ggml.add_eos_token", true);
      set_id(writer);
    });
  };
  for (const Id& id : ids) {
    const auto key = id.key;
    const auto member = id.member;
    // -1 means none and is no fault, also where it is stored without a sign.
    EXPECT_EQ(read_with([&](GgufWriter& w) { set_signed(w, key, -1); }).*member, std::nullopt);
    EXPECT_EQ(warnings_, "") << key;
    EXPECT_EQ(read_with([&](GgufWriter& w) { w.set_integer(key, 0xffffffff); }).*member,
              std::nullopt);
    EXPECT_EQ(warnings_, "") << key;
    for (const Index beyond : {3, 151'643, 0x7fffffff}) {
      const auto v = read_with([&](GgufWriter& w) { w.set_integer(key, beyond); });
      EXPECT_EQ(v.*member, std::nullopt) << key << " " << beyond;
      EXPECT_FALSE(v.add_bos || v.add_eos);
      EXPECT_THAT(warnings_, HasSubstr(key));
      EXPECT_THAT(warnings_, HasSubstr(concat(beyond)));
      EXPECT_NO_THROW(text::make_tokenizer(v));
    }
    EXPECT_EQ(read_with([&](GgufWriter& w) { set_signed(w, key, -5); }).*member, std::nullopt);
    EXPECT_THAT(warnings_, HasSubstr(key));
    EXPECT_EQ(read_with([&](GgufWriter& w) { w.set_integer(key, 2); }).*member, 2);
    EXPECT_EQ(warnings_, "");
  }
}

// The same ids for the architecture of a whole model, which has 48 rows.
TEST_F(GgufVocabulary, a_model_opens_without_the_stop_tokens_that_it_does_not_have) {
  const auto path = folder_.path() / "m.gguf";
  const auto open_with = [&](const MoreKeys& more_keys) {
    test::write_tiny_gguf(path, {GgufType::F32}, more_keys);
    return test::open_bare(path)->architecture();
  };
  const char *const bos = "tokenizer.ggml.bos_token_id", *const eos = "tokenizer.ggml.eos_token_id",
                    *const eot = "tokenizer.ggml.eot_token_id",
                    *const eom = "tokenizer.ggml.eom_token_id";
  for (const Index beyond : {Index{48}, Index{1} << 30, Index{0x7ffffffe}, Index{0x7fffffff},
                             Index{0x80000000}, Index{0xfffffffe}, Index{0xffffffff}}) {
    const Architecture a = open_with([&](GgufWriter& writer) {
      writer.set_integer(bos, beyond);
      writer.set_integer(eos, beyond);
      writer.set_integer(eot, 47);
      writer.set_integer(eom, beyond);
    });
    EXPECT_EQ(a.bos_id, std::nullopt) << beyond;
    EXPECT_THAT(a.stop_ids, testing::ElementsAre(47)) << beyond;
  }
  for (const std::int32_t negative : {-1, -7, std::numeric_limits<std::int32_t>::min()}) {
    const Architecture a = open_with([&](GgufWriter& writer) {
      set_signed(writer, bos, negative);
      set_signed(writer, eos, negative);
    });
    EXPECT_EQ(a.bos_id, std::nullopt) << negative;
    EXPECT_TRUE(a.stop_ids.empty()) << negative;
  }
  const Architecture all = open_with([&](GgufWriter& writer) {
    writer.set_integer(bos, 0);
    writer.set_integer(eos, 47);
    writer.set_integer(eot, 5);
    writer.set_integer(eom, 5);
  });
  EXPECT_EQ(all.bos_id, 0);
  EXPECT_THAT(all.stop_ids, testing::ElementsAre(5, 47));
}

TEST_F(GgufVocabulary, a_model_and_its_tokenizer_agree_on_the_ids_that_are_left_out) {
  const auto path = folder_.path() / "m.gguf";
  test::write_tiny_gguf(path, {GgufType::F32}, [](GgufWriter& writer) {
    write_gguf_vocabulary(test::tiny_sentencepiece(48), 48, writer);
    writer.set_integer("tokenizer.ggml.bos_token_id", 48);
    writer.set_integer("tokenizer.ggml.eos_token_id", 48);
    writer.set_integer("tokenizer.ggml.eot_token_id", 2);
  });
  const auto model = open_model_or_throw(path);
  EXPECT_EQ(model->architecture().bos_id, std::nullopt);
  EXPECT_THAT(model->architecture().stop_ids, testing::ElementsAre(2));
  ASSERT_NE(model->tokenizer(), nullptr);
  EXPECT_EQ(model->tokenizer()->bos(), std::nullopt);
  EXPECT_EQ(model->tokenizer()->eos(), std::nullopt);
  EXPECT_FALSE(model->tokenizer()->adds_bos());
  const auto whole = text::make_tokenizer(test::tiny_sentencepiece(48));
  EXPECT_EQ(model->tokenizer()->encode("a bad cab"),
            whole->encode("a bad cab", {.add_bos = false}));
}

// Merges that build whole words from the left, over everything at which a splitter may cut.
std::vector<std::pair<std::string, std::string>> merges_across_cuts(const Tokens& texts) {
  std::vector<std::pair<std::string, std::string>> merges{{" ", " "}, {"\n", "\n"}};
  std::set<std::pair<std::string, std::string>> known(merges.begin(), merges.end());
  const auto add_word = [&](const std::string& word) {
    for (std::size_t size = 1; size < word.size(); ++size) {
      std::pair<std::string, std::string> merge(word.substr(0, size), word.substr(size, 1));
      if (known.insert(merge).second) merges.push_back(std::move(merge));
    }
  };
  for (const std::string& text : texts) {
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      end = std::min(text.find(' ', begin + 1), text.size());
      add_word(text.substr(begin, end - begin));
      if (text[begin] == ' ') add_word(text.substr(begin + 1, end - begin - 1));
    }
  }
  return merges;
}

// Neither decomposed characters, which hone composes for Qwen as its own tokenizer does, nor
// capitals beyond ASCII before others, which llama.cpp takes for small letters.
TEST(GgufVocabularyPeer, llama_cpp_cuts_texts_alike_under_each_name_of_a_splitter) {
  HONE_REQUIRE_PEER("llama_cpp");
  const Tokens texts{"Hello world, it's 12345 o'clock! I'M HERE",
                     "CamelCase ALLCAPS camelCaseXML HTTPServer2 aB",
                     "don't DON'T they'LL we'Ve 's 't 'S x'y",
                     "a  b   c\n\n\nd\t\te \r\n f",
                     "x/y//z\n/ foo///\n\nbar",
                     "1234567 12 3.14159 1e10",
                     "!!! ??? ... ;;;\n\n",
                     "\u00e9t\u00e9 na\u00efve Stra\u00dfe",
                     "\u4e2d\u6587\u5b57\u7b26 \u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4",
                     "\U0001f642\U0001f642 emoji",
                     "   leading",
                     "trailing   ",
                     "a\u00a0b",
                     "   \n  \n x",
                     "\u0661\u0662\u0663\u0664 \u00bd",
                     "if(x){return y;}\n\t// note\n",
                     "C++ / C# = a_b_c"};
  text::Vocabulary made = test::toy_byte_level(merges_across_cuts(texts));
  test::add_piece(made, text::spell_bytes(" whole"));  // of which no merges make it
  Tokens merges;
  for (const auto& [left, right] : made.merges) merges.push_back(left + " " + right);
  std::vector<std::int32_t> types;
  for (const text::TokenType type : made.types) types.push_back(static_cast<std::int32_t>(type));
  Tokens all_texts = texts;
  all_texts.emplace_back("a whole b");
  const std::vector<Tokens> groups{{"gpt-2", "a.x-4.0", "mellum"},
                                   {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"},
                                   {"dbrx", "smaug-bpe"},
                                   {"qwen2", "deepseek-r1-qwen", "megrez"},
                                   {"smollm", "refact", "starcoder", "command-r", "codeshell"},
                                   {"tekken"},
                                   {"gpt-4o"}};
  const test::TemporaryFolder folder;
  Json paths = Json::array();
  Tokens names;
  for (const Tokens& group : groups) {
    for (const std::string& name : group) {
      names.push_back(name);
      paths.push_back((folder.path() / (name + ".gguf")).string());
      GgufWriter writer(paths.back().get<std::string>());
      writer.set_string("general.architecture", "llama");
      writer.set_string("tokenizer.ggml.model", "gpt2");
      writer.set_string(kPreKey, name);
      writer.set_strings("tokenizer.ggml.tokens", made.pieces);
      writer.set_integers("tokenizer.ggml.token_type", types);
      writer.set_strings("tokenizer.ggml.merges", merges);
      writer.set_integer("tokenizer.ggml.bos_token_id", *made.bos);
      writer.set_integer("tokenizer.ggml.eos_token_id", *made.eos);
      writer.commit();
    }
  }
  const Json answers = parse_json(test::run_peer("tests/model_io/llama_cpp_vocabulary.py",
                                                 {paths.dump(), Json(all_texts).dump()}),
                                  "llama.cpp");
  ASSERT_EQ(answers.size(), names.size());
  std::set<std::string> different;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const MmapFile file(paths[i].get<std::string>());
    const auto tokenizer = text::make_tokenizer(
        read_gguf_vocabulary(parse_gguf(file.bytes(), names[i]), names[i]), names[i]);
    for (std::size_t t = 0; t < all_texts.size(); ++t) {
      EXPECT_EQ(tokenizer->encode(all_texts[t], {.add_bos = false}), answers[i][t].get<test::Ids>())
          << names[i] << ": " << all_texts[t];
    }
    different.insert(answers[i].dump());
  }
  EXPECT_EQ(different.size(), groups.size()) << "the texts tell the splitters apart";
}

}  // namespace
}  // namespace hone::model_io
