// SPDX-License-Identifier: Apache-2.0
#include "hone/text/format/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/text/load_tokenizer.h"
#include "hone/text/unicode/splitter.h"
#include "tests/support/test_data.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::text {
namespace {

using test::pieces_of;
using test::toy_byte_level;
using test::toy_sentencepiece;
using testing::ElementsAre;
using testing::HasSubstr;

Json toy_json() { return to_tokenizer_json(toy_byte_level({{"t", "h"}, {"th", "e"}})); }

std::shared_ptr<const Tokenizer> read(const Json& json) {
  return make_tokenizer(read_tokenizer_json(json, "toy.json"), "toy.json");
}

test::Failure failure_of_reading(const Json& json) {
  return test::failure_of([&] { read(json); });
}

void expect_same(const Vocabulary& a, const Vocabulary& b) {
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.pieces, b.pieces);
  EXPECT_EQ(a.types, b.types);
  EXPECT_EQ(a.pattern, b.pattern);
  EXPECT_EQ(a.further_patterns, b.further_patterns);
  EXPECT_EQ(merges_by_score(a), merges_by_score(b));
  EXPECT_EQ(a.bos, b.bos);
  EXPECT_EQ(a.eos, b.eos);
  EXPECT_EQ(a.unknown, b.unknown);
  EXPECT_EQ(std::tuple(a.add_bos, a.add_eos, a.add_space_prefix, a.ignore_merges, a.nfc),
            std::tuple(b.add_bos, b.add_eos, b.add_space_prefix, b.ignore_merges, b.nfc));
  EXPECT_EQ(std::tuple(a.prefix_only_first, a.prefix_if_missing, a.remove_extra_whitespaces),
            std::tuple(b.prefix_only_first, b.prefix_if_missing, b.remove_extra_whitespaces));
}

void expect_survives_writing(const Vocabulary& v) {
  Vocabulary back = read_tokenizer_json(to_tokenizer_json(v), "written");
  apply_tokenizer_config(back, to_tokenizer_config_json(v), "written");
  expect_same(v, back);
}

TEST(TokenizerJson, gives_back_a_byte_level_vocabulary) {
  Vocabulary v = toy_byte_level({{"t", "h"}, {"th", "e"}});
  expect_survives_writing(v);
  v.add_space_prefix = true;
  expect_survives_writing(v);
  v.add_space_prefix = false;
  v.add_bos = v.add_eos = v.nfc = v.ignore_merges = true;
  v.pattern = kLlama3Pattern;
  expect_survives_writing(v);
  v.further_patterns = {R"(\p{N})", std::string(kGpt2Pattern)};
  expect_survives_writing(v);
}

TEST(TokenizerJson, gives_back_a_sentencepiece_vocabulary) {
  Vocabulary v = toy_sentencepiece({{"▁", -9}, {"a", -8}, {"b", -7}, {"ab", -1}, {"▁ab", -2}});
  expect_survives_writing(v);
  v.remove_extra_whitespaces = true;
  expect_survives_writing(v);
  v.remove_extra_whitespaces = false;
  v.prefix_if_missing = v.prefix_only_first = true;
  expect_survives_writing(v);
  const Vocabulary back = read_tokenizer_json(to_tokenizer_json(v), "written");
  EXPECT_TRUE(scores_decide_merges(back));
  EXPECT_THAT(merges_by_score(v), ElementsAre(std::pair("a", "b"), std::pair("▁", "ab")));
}

TEST(TokenizerJson, reads_merges_in_both_spellings_and_a_model_without_type) {
  Json json = toy_json();
  json["model"].erase("type");
  const auto expected = pieces_of(*read(json), "the thin");
  EXPECT_THAT(expected, ElementsAre("the", "Ġ", "th", "i", "n"));
  json["model"]["merges"] = Json::parse(R"([["t", "h"], ["th", "e"]])");
  EXPECT_EQ(pieces_of(*read(json), "the thin"), expected);
}

TEST(TokenizerJson, reads_sequences_of_splitters) {
  Json json = toy_json();
  json["pre_tokenizer"] = Json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Digits", "individual_digits": true},
      {"type": "Split", "pattern": {"String": "."}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  const Vocabulary v = read_tokenizer_json(json, "toy.json");
  EXPECT_EQ(v.pattern, R"(\p{N})");
  EXPECT_THAT(v.further_patterns, ElementsAre(R"(\.)"));
  json["model"]["merges"] = Json::array({"1 2", "a .", "t h"});
  json["model"]["vocab"]["12"] = 259;
  json["model"]["vocab"]["a."] = 260;
  EXPECT_THAT(pieces_of(*read(json), "12 a.th"), ElementsAre("1", "2", "Ġ", "a", ".", "th"));
}

TEST(TokenizerJson, reads_flags_of_added_tokens) {
  Json json = toy_json();
  json["added_tokens"] = Json::parse(R"([
      {"id": 258, "content": "<|end|>", "special": true, "normalized": false},
      {"id": 259, "content": "<mask>", "special": true, "normalized": false, "lstrip": true},
      {"id": 260, "content": "tool", "special": false, "normalized": true, "single_word": true}])");
  const auto t = read(json);
  EXPECT_THAT(pieces_of(*t, "a <mask>tool", true), ElementsAre("a", "<mask>", "tool"));
  EXPECT_THAT(pieces_of(*t, "tools"), ElementsAre("t", "o", "o", "l", "s"));
  EXPECT_FALSE(t->is_control(260));
  EXPECT_TRUE(t->is_control(259));
}

TEST(TokenizerJson, matches_normalized_tokens_after_nfc) {
  Json json = toy_json();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  json["added_tokens"].push_back(
      {{"id", 259}, {"content", "caf\xC3\xA9"}, {"special", false}, {"normalized", true}});
  EXPECT_THAT(pieces_of(*read(json), "cafe\xCC\x81"), ElementsAre("caf\xC3\xA9"));
}

TEST(TokenizerJson, takes_special_tokens_from_the_configuration) {
  Vocabulary v = read_tokenizer_json(toy_json(), "toy.json");
  v.bos.reset();
  apply_tokenizer_config(v, Json::parse(R"({"bos_token": {"content": "<|end|>"}, "eos_token": null,
                                            "pad_token": "a", "add_bos_token": true})"),
                         "config");
  EXPECT_EQ(v.bos, 258);
  EXPECT_EQ(v.padding, 'a');
  EXPECT_FALSE(v.add_bos);  // the template decides, but for Llama's classes
  apply_tokenizer_config(
      v, Json::parse(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true})"), "config");
  EXPECT_TRUE(v.add_bos);
}

TEST(TokenizerJson, names_each_part_that_it_does_not_run) {
  const auto expect_unsupported = [](const char* key, const Json& part, const char* named) {
    Json json = toy_json();
    json[key] = part;
    const auto failure = failure_of_reading(json);
    EXPECT_EQ(failure.category, ErrorCategory::Unsupported) << key << " " << part;
    EXPECT_THAT(failure.message, HasSubstr(named));
    EXPECT_THAT(failure.message, HasSubstr("toy.json"));
  };
  expect_unsupported("normalizer", {{"type", "NFKC"}}, "NFKC");
  expect_unsupported("pre_tokenizer", {{"type", "BertPreTokenizer"}}, "BertPreTokenizer");
  expect_unsupported("post_processor", {{"type", "RobertaProcessing"}}, "RobertaProcessing");
  expect_unsupported("decoder", {{"type", "WordPiece"}}, "WordPiece");
  expect_unsupported("pre_tokenizer", nullptr, "U+2581");
  Json json = toy_json();
  json["model"]["type"] = "Unigram";
  EXPECT_THAT(failure_of_reading(json).message, HasSubstr("Unigram"));
  json = toy_json();
  json["model"]["end_of_word_suffix"] = "</w>";
  EXPECT_EQ(failure_of_reading(json).category, ErrorCategory::Unsupported);
  json = toy_json();
  json["pre_tokenizer"] = Json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Removed", "invert": true},
      {"type": "ByteLevel"}]})");
  EXPECT_THAT(failure_of_reading(json).message, HasSubstr("Removed"));
}

// The splitter of Llama 3, which is also that of cl100k in files of this format, and o200k's.
TEST(TokenizerJson, a_split_may_remove_what_lies_between_matches_where_nothing_does) {
  Json json = toy_json();
  const auto with_split = [&](std::string_view regex, const char* behavior, bool invert) {
    json["pre_tokenizer"] = Json::parse(R"({"type": "Sequence", "pretokenizers": [
        {"type": "Split"},
        {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
    Json& split = json["pre_tokenizer"]["pretokenizers"][0];
    split["pattern"] = {{"Regex", regex}};
    split["behavior"] = behavior;
    split["invert"] = invert;
    return json;
  };
  Vocabulary o200k;
  set_pre_tokenizer(o200k, "gpt-4o");
  for (const std::string_view regex : {std::string_view(o200k.pattern), kLlama3Pattern}) {
    expect_same(read_tokenizer_json(with_split(regex, "Removed", true), "toy.json"),
                read_tokenizer_json(with_split(regex, "Isolated", false), "toy.json"));
    EXPECT_EQ(read_tokenizer_json(json, "toy.json").pattern, regex);
    // What is removed otherwise are the matches, which is everything.
    EXPECT_EQ(failure_of_reading(with_split(regex, "Removed", false)).category,
              ErrorCategory::Unsupported);
    EXPECT_EQ(failure_of_reading(with_split(regex, "MergedWithNext", true)).category,
              ErrorCategory::Unsupported);
  }
  // Each of these leaves out one kind of character: spaces, numbers, letters, all others.
  for (const char* regex : {R"(\p{L}+|\p{N}+|[^\s\p{L}\p{N}]+)", R"(\p{L}+|[^\s\p{L}\p{N}]+|\s+)",
                            R"(\p{N}+|[^\s\p{L}\p{N}]+|\s+)", R"(\p{L}+|\p{N}+|\s+)"}) {
    const auto failure = failure_of_reading(with_split(regex, "Removed", true));
    EXPECT_EQ(failure.category, ErrorCategory::Unsupported) << regex;
    EXPECT_THAT(failure.message, HasSubstr("Removed")) << regex;
  }
}

TEST(TokenizerJson, a_split_at_spaces_after_these_were_replaced_splits_nothing) {
  Json json = to_tokenizer_json(toy_sentencepiece({{"\u2581a", -1.0f}, {"a", -2.0f}}));
  json["normalizer"] =
      Json::parse(R"({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})");
  json["pre_tokenizer"] = Json::parse(
      R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
          "invert": false})");
  EXPECT_THAT(pieces_of(*read(json), "a a"), ElementsAre("a", "\u2581a"));
  json["pre_tokenizer"]["pattern"]["String"] = "a";
  EXPECT_EQ(failure_of_reading(json).category, ErrorCategory::Unsupported);
  json["pre_tokenizer"]["pattern"]["String"] = " ";
  json["pre_tokenizer"]["invert"] = true;
  EXPECT_EQ(failure_of_reading(json).category, ErrorCategory::Unsupported);
}

TEST(TokenizerJson, gaps_in_the_ids_become_unused_padding_pieces) {
  Json json = toy_json();
  const auto expected = pieces_of(*read(json), "the thin<|end|>", true);
  json["model"]["vocab"].erase("<|end|>");
  json["added_tokens"][0]["id"] = 262;
  json["model"]["vocab"]["Zz"] = 264;
  const Vocabulary v = read_tokenizer_json(json, "toy.json");
  ASSERT_EQ(v.pieces.size(), 265u);
  for (const std::size_t gap : {258, 259, 260, 261, 263}) {
    EXPECT_EQ(v.pieces[gap], concat("[PAD", gap, "]"));
    EXPECT_EQ(v.types[gap], TokenType::Unused);
  }
  EXPECT_EQ(v.pieces[262], "<|end|>");
  EXPECT_EQ(v.types[262], TokenType::Control);
  EXPECT_EQ(v.pieces[264], "Zz");
  EXPECT_EQ(v.types[264], TokenType::Normal);
  EXPECT_EQ(std::ranges::count(v.types, TokenType::Unused), 5);
  EXPECT_EQ(unpadded_size(v), 265u);
  const auto tokenizer = read(json);
  EXPECT_EQ(pieces_of(*tokenizer, "the thin<|end|>", true), expected);
  // The spelling of a gap in a text is text.
  const auto spelled = tokenizer->encode("[PAD259]", {.parse_special = true});
  EXPECT_EQ(std::ranges::count(spelled, 259), 0);
  EXPECT_EQ(tokenizer->decode(spelled), "[PAD259]");
}

TEST(TokenizerJson, the_gaps_may_not_make_a_small_file_a_large_vocabulary) {
  for (const auto& [id, accepted] : {std::pair(60'000, true), std::pair(70'000, false)}) {
    Json json = toy_json();
    json["model"]["vocab"]["far"] = id;
    const auto failure = failure_of_reading(json);
    EXPECT_EQ(failure.failed, !accepted) << id << " " << failure.message;
    if (!accepted) {
      EXPECT_EQ(failure.category, ErrorCategory::CorruptFile);
      EXPECT_THAT(failure.message, HasSubstr("70000"));
    }
  }
}

TEST(PreTokenizer, names_of_one_splitter_set_the_same) {
  // As llama.cpp has them, but for "default". What hone writes comes first.
  const std::vector<std::vector<const char*>> groups = {
      {"gpt-2", "default", "a.x-4.0", "mellum"},
      {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"},
      {"dbrx", "smaug-bpe"},
      {"qwen2", "deepseek-r1-qwen", "megrez"},
      {"smollm", "refact", "starcoder", "command-r", "codeshell"}};
  for (const auto& group : groups) {
    Vocabulary first = toy_byte_level({});
    set_pre_tokenizer(first, group[0], "test");
    for (const char* name : group) {
      Vocabulary v = toy_byte_level({});
      set_pre_tokenizer(v, name, "test");
      expect_same(v, first);
      EXPECT_EQ(pre_name_for(v), group[0]) << name;
    }
  }
  Vocabulary v;
  const auto failure = test::failure_of([&] { set_pre_tokenizer(v, "poro-chat", "m.gguf"); });
  EXPECT_EQ(failure.category, ErrorCategory::Unsupported);
  for (const char* named : {"m.gguf", "tokenizer.ggml.pre", "poro-chat", "tekken", "gpt-4o"}) {
    EXPECT_THAT(failure.message, HasSubstr(named));
  }
}

TEST(PreTokenizer, tekken_and_gpt_4o_cut_words_where_the_case_changes) {
  // Contractions, digits and slashes differ or are alike as the published expressions say.
  struct Cut {
    const char* name;
    std::vector<std::string> parts;
  };
  const Cut cuts[] = {
      {"tekken",
       {"Camel", "Case", " isn", "'t", " XML", " ", "1", "2", "3", "4", " e\u0301t", " ./\n/",
        "x"}},
      {"gpt-4o", {"Camel", "Case", " isn't", " XML", " ", "123", "4", " e\u0301t", " ./\n/", "x"}}};
  for (const auto& [name, parts] : cuts) {
    Vocabulary v;
    set_pre_tokenizer(v, name, "test");
    std::vector<std::string> got;
    Splitter(v.pattern, "test")
        .split("CamelCase isn't XML 1234 e\u0301t ./\n/x",
               [&](std::string_view part) { got.emplace_back(part); });
    EXPECT_EQ(got, parts) << name;
  }
}

TEST(PreTokenizer, names_stand_for_patterns_in_both_directions) {
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "dbrx", "smollm", "tekken", "gpt-4o"}) {
    Vocabulary v = toy_byte_level({});
    set_pre_tokenizer(v, name, "test");
    EXPECT_EQ(pre_name_for(v), name);
  }
  Vocabulary v = toy_byte_level({{"1", "2"}});
  set_pre_tokenizer(v, "smollm", "test");
  EXPECT_THAT(pieces_of(*make_tokenizer(v), "a 12"), ElementsAre("a", "\u0120", "1", "2"));
  v.further_patterns.push_back("x");
  EXPECT_EQ(pre_name_for(v), std::nullopt);
}

TEST(TokenizerJson, refuses_lies_with_one_sentence) {
  const auto expect_corrupt = [](const std::function<void(Json&)>& spoil, const char* named) {
    Json json = toy_json();
    spoil(json);
    const auto failure = failure_of_reading(json);
    EXPECT_EQ(failure.category, ErrorCategory::CorruptFile) << named;
    EXPECT_THAT(failure.message, HasSubstr(named));
  };
  expect_corrupt([](Json& j) { j = Json::array(); }, "object");
  expect_corrupt([](Json& j) { j.erase("model"); }, "model");
  expect_corrupt([](Json& j) { j["model"]["vocab"] = 7; }, "vocabulary");
  expect_corrupt([](Json& j) { j["model"]["vocab"]["a"] = 98; }, "98");
  expect_corrupt([](Json& j) { j["model"]["vocab"]["hole"] = 2'000'000'000; }, "token ids below");
  expect_corrupt([](Json& j) { j["model"]["vocab"]["a"] = -1; }, "-1");
  expect_corrupt([](Json& j) { j["model"]["vocab"]["a"] = 1e99; }, "ids");
  expect_corrupt([](Json& j) { j["model"]["vocab"]["a"] = 4'294'967'393; }, "ids");
  expect_corrupt([](Json& j) { j["model"]["merges"] = Json::array({"t  h"}); }, "merges");
  expect_corrupt([](Json& j) { j["model"]["merges"] = Json::array({"th"}); }, "merges");
  expect_corrupt([](Json& j) { j["model"]["merges"] = Json::parse(R"([["t", "h", "e"]])"); },
                 "merges");
  expect_corrupt([](Json& j) { j["model"]["merges"] = Json::array({"x zz"}); }, "merges");
  expect_corrupt([](Json& j) { j["model"]["unk_token"] = "none"; }, "unk_token");
  expect_corrupt([](Json& j) { j["model"]["byte_fallback"] = "yes"; }, "byte_fallback");
  expect_corrupt([](Json& j) { j["added_tokens"][0]["id"] = 0; }, "0");
  expect_corrupt([](Json& j) { j["added_tokens"][0]["content"] = "a"; }, "two ids");
}

TEST(TokenizerJson, refuses_to_write_what_it_cannot_say) {
  Vocabulary v = toy_byte_level({});
  v.add_space_prefix = true;
  v.pattern = kLlama3Pattern;
  EXPECT_EQ(test::failure_of([&] { to_tokenizer_json(v); }).category, ErrorCategory::Unsupported);
}

TEST(LoadTokenizer, finds_the_file_in_a_folder_and_obeys_its_configuration) {
  const test::TemporaryFolder folder;
  const auto failure = test::failure_of([&] { load_tokenizer_or_throw(folder.path()); });
  EXPECT_EQ(failure.category, ErrorCategory::NotFound);
  write_json_file(folder.path() / "tokenizer.json", toy_json());
  write_json_file(folder.path() / "tokenizer_config.json",
                  {{"eos_token", "<|end|>"}, {"pad_token", "the"}});
  const auto t = load_tokenizer_or_throw(folder.path());
  EXPECT_EQ(t->eos(), 258);
  EXPECT_EQ(t->vocabulary().padding, 257);
}

TEST(LoadTokenizer, reads_vocabulary_and_merges_as_a_pair) {
  const test::TemporaryFolder folder;
  const Json json = toy_json();
  write_json_file(folder.path() / "x_vocab.json", json["model"]["vocab"]);
  write_text_file(folder.path() / "x_merges.txt", "#version: 0.2\r\nt h\r\nth e\n\n");
  for (const char* name : {"x_vocab.json", "x_merges.txt"}) {
    EXPECT_THAT(pieces_of(*load_tokenizer_or_throw(folder.path() / name), "the"),
                ElementsAre("the"));
  }
  std::filesystem::remove(folder.path() / "x_merges.txt");
  EXPECT_EQ(
      test::failure_of([&] { load_tokenizer_or_throw(folder.path() / "x_vocab.json"); }).category,
      ErrorCategory::NotFound);
}

TEST(LoadTokenizer, writes_gpt2_and_llama2_so_that_they_read_back) {
  HONE_REQUIRE_TEST_DATA(gpt2, "tokenizers/gpt2_vocab.json");
  HONE_REQUIRE_TEST_DATA(llama2, "tokenizers/llama2_tokenizer.model");
  for (const auto& path : {gpt2, llama2}) {
    expect_survives_writing(load_tokenizer_or_throw(path)->vocabulary());
  }
}

}  // namespace
}  // namespace hone::text
