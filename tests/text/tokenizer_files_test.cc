// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/text/format/sentencepiece_model.h"
#include "hone/text/format/tok_bin.h"
#include "hone/text/format/tokenizer_json.h"
#include "hone/text/load_tokenizer.h"
#include "tests/support/test_data.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::text {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string number_field(int field, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}
std::string bytes_field(int field, std::string_view bytes) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(bytes.size()) +
         std::string(bytes);
}
std::string piece_field(std::string_view piece, float score, TokenType type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return bytes_field(1, bytes_field(1, piece) + varint(2 << 3 | 5) + bits +
                            number_field(3, static_cast<std::uint64_t>(type)));
}

struct ModelParts {
  std::string trainer = number_field(3, 2);  // model_type BPE
  std::string normalizer = {};
  std::string rest = {};
};

std::string toy_model(const ModelParts& parts = {}) {
  return piece_field("<unk>", 0, TokenType::Unknown) + piece_field("<s>", 0, TokenType::Control) +
         piece_field("</s>", 0, TokenType::Control) + piece_field("▁", -9, TokenType::Normal) +
         piece_field("a", -8, TokenType::Normal) + piece_field("b", -7, TokenType::Normal) +
         piece_field("ab", -1, TokenType::Normal) + bytes_field(2, parts.trainer) +
         bytes_field(3, parts.normalizer) + parts.rest;
}

test::Failure failure_of_model(const std::string& file) {
  return test::failure_of([&] { read_sentencepiece_model(bytes_of(file), "toy.model"); });
}

TEST(SentencePieceModel, reads_pieces_and_defaults) {
  const SentencePieceModel model = read_sentencepiece_model(bytes_of(toy_model()), "toy.model");
  const Vocabulary& v = model.vocabulary;
  EXPECT_EQ(v.pieces.size(), 7u);
  EXPECT_EQ(v.scores[6], -1.0f);
  EXPECT_EQ(v.unknown, 0);
  EXPECT_EQ(v.bos, 1);
  EXPECT_EQ(v.eos, 2);
  EXPECT_TRUE(v.add_space_prefix);  // the defaults of the format
  EXPECT_TRUE(v.remove_extra_whitespaces);
  EXPECT_FALSE(v.byte_fallback);
  EXPECT_EQ(make_tokenizer(v)->encode(" ab  c"), (test::Ids{1, 3, 6, 3, 0}));
}

TEST(SentencePieceModel, runs_the_self_test_of_the_file) {
  const auto sample = [](std::string_view expected) {
    return bytes_field(4, bytes_field(1, bytes_field(1, "ab") + bytes_field(2, expected)));
  };
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "good.model", toy_model({.rest = sample("▁ ab")}));
  EXPECT_NO_THROW(load_tokenizer_or_throw(folder.path() / "good.model"));
  write_text_file(folder.path() / "bad.model", toy_model({.rest = sample("▁a b")}));
  const auto failure =
      test::failure_of([&] { load_tokenizer_or_throw(folder.path() / "bad.model"); });
  EXPECT_EQ(failure.category, ErrorCategory::CorruptFile);
  EXPECT_THAT(failure.message, HasSubstr("self-test"));
}

TEST(SentencePieceModel, names_what_it_does_not_run) {
  const auto expect_unsupported = [](const ModelParts& parts, const char* named) {
    const auto failure = failure_of_model(toy_model(parts));
    EXPECT_EQ(failure.category, ErrorCategory::Unsupported) << named;
    EXPECT_THAT(failure.message, HasSubstr(named));
  };
  expect_unsupported({.trainer = ""}, "unigram");
  expect_unsupported({.trainer = number_field(3, 4)}, "type 4");
  expect_unsupported({.trainer = number_field(3, 2) + number_field(24, 1)}, "spaces");
  expect_unsupported({.normalizer = bytes_field(2, "xxxx")}, "character map");
  expect_unsupported({.normalizer = number_field(5, 0)}, "escape");
}

TEST(SentencePieceModel, refuses_every_cut_of_a_file) {
  const std::string whole = toy_model();
  int refused = 0;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto failure = failure_of_model(whole.substr(0, length));
    refused += failure.failed ? 1 : 0;
    if (failure.failed && failure.category != ErrorCategory::CorruptFile) {
      EXPECT_THAT(failure.message, HasSubstr("unigram"));  // the trainer part is gone
    }
  }
  // Only cuts between top-level fields after the trainer's can pass.
  EXPECT_GE(refused, static_cast<int>(whole.size()) - 3);
}

TEST(SentencePieceModel, refuses_lengths_beyond_the_file) {
  for (const std::uint64_t length : {std::uint64_t{1} << 20, ~std::uint64_t{0}}) {
    EXPECT_EQ(failure_of_model(varint(1 << 3 | 2) + varint(length)).category,
              ErrorCategory::CorruptFile);
  }
  EXPECT_EQ(failure_of_model(std::string(12, '\xFF')).category, ErrorCategory::CorruptFile);
  EXPECT_EQ(failure_of_model("\x0B").category, ErrorCategory::CorruptFile);  // a group
  EXPECT_EQ(failure_of_model("").category, ErrorCategory::CorruptFile);
}

std::string toy_tok_bin() {
  return write_tok_bin(test::toy_sentencepiece({{"▁", -9}, {"a", -8}, {"b", -7}, {"▁ab", -1}}));
}

test::Failure failure_of_tok_bin(const std::string& file) {
  return test::failure_of(
      [&] { make_tokenizer(read_tok_bin(bytes_of(file), "tok.bin"), "tok.bin"); });
}

TEST(TokBin, gives_back_the_published_files_byte_for_byte) {
  HONE_REQUIRE_TEST_DATA(small, "lm/tok512.bin");
  HONE_REQUIRE_TEST_DATA(large, "tokenizers/llama2_tokenizer.bin");
  for (const auto& path : {small, large}) {
    const std::string file = read_text_file(path);
    EXPECT_EQ(write_tok_bin(read_tok_bin(bytes_of(file), "tok.bin")), file);
  }
}

TEST(TokBin, is_written_from_a_sentencepiece_model) {
  HONE_REQUIRE_TEST_DATA(model, "lm/tok512.model");
  HONE_REQUIRE_TEST_DATA(bin, "lm/tok512.bin");
  EXPECT_EQ(write_tok_bin(load_tokenizer_or_throw(model)->vocabulary()), read_text_file(bin));
}

TEST(TokBin, is_told_from_other_files) {
  EXPECT_TRUE(looks_like_tok_bin(bytes_of(toy_tok_bin())));
  EXPECT_FALSE(looks_like_tok_bin(bytes_of(toy_model())));
  HONE_REQUIRE_TEST_DATA(weights, "lm/stories260K.bin");
  EXPECT_FALSE(looks_like_tok_bin(MmapFile(weights).bytes()));
}

TEST(TokBin, refuses_lies_with_one_sentence) {
  const std::string whole = toy_tok_bin();
  int accepted = 0;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto failure = failure_of_tok_bin(whole.substr(0, length));
    if (!failure.failed) {
      ++accepted;
      continue;
    }
    ASSERT_EQ(failure.category, ErrorCategory::CorruptFile) << length;
  }
  EXPECT_LE(accepted, 3);  // between the tokens behind the bytes: a shorter vocabulary
  const auto with_number = [&](std::size_t offset, std::int32_t number) {
    std::string file = whole;
    std::memcpy(file.data() + offset, &number, 4);
    return failure_of_tok_bin(file);
  };
  EXPECT_THAT(with_number(8, -5).message, HasSubstr("-5"));
  EXPECT_THAT(with_number(8, 0x7FFFFFFF).message, HasSubstr("2147483647"));
  EXPECT_EQ(with_number(0, 3).category, ErrorCategory::CorruptFile);  // pieces above the longest
  EXPECT_EQ(with_number(4, 0x7FC00000).category, ErrorCategory::CorruptFile);  // a NaN score
  std::string renamed = whole;
  renamed[13] = 'x';  // <unk>
  EXPECT_THAT(failure_of_tok_bin(renamed).message, HasSubstr("<unk>"));
}

TEST(TokBin, refuses_to_write_what_it_cannot_say) {
  const auto refuses = [](const Vocabulary& v) {
    return test::failure_of([&] { write_tok_bin(v); }).category == ErrorCategory::Unsupported;
  };
  EXPECT_TRUE(refuses(test::toy_byte_level({})));
  EXPECT_TRUE(refuses(test::toy_sentencepiece({})));
  Vocabulary v = test::toy_sentencepiece({{"a", -1}, {"b", -2}, {"ab", -3}, {"ba", -4}});
  EXPECT_FALSE(refuses(v));
  v.merges = {{"b", "a"}, {"a", "b"}};
  EXPECT_TRUE(refuses(v));
}

// One random change of a valid file: a byte set, a stretch cut out, doubled or replaced.
std::string mutate(std::string file, PhiloxStream& random) {
  const std::uint32_t changes = 1 + random.below(3);
  for (std::uint32_t i = 0; i < changes && !file.empty(); ++i) {
    const std::size_t at = random.below(static_cast<std::uint32_t>(file.size()));
    const std::size_t length = std::min<std::size_t>(1 + random.below(9), file.size() - at);
    switch (random.below(4)) {
      case 0:
        file[at] = static_cast<char>(random.below(256));
        break;
      case 1:
        file.erase(at, length);
        break;
      case 2:
        file.insert(at, file.substr(at, length));
        break;
      default:
        file.replace(at, length, std::string(length, static_cast<char>(0xFF)));
        break;
    }
  }
  return file;
}

// Each mutation gives a tokenizer that runs, or one hone::Error; anything else escapes.
void expect_robust(const std::string& file, FunctionRef<Vocabulary(const std::string&)> read) {
  PhiloxStream random(41);
  int accepted = 0;
  for (int round = 0; round < 10'000; ++round) {
    const std::string mutated = mutate(file, random);
    const auto failure = test::failure_of([&] {
      const auto t = make_tokenizer(read(mutated));
      t->decode(t->encode("ab é <s>", {.parse_special = true}));
    });
    accepted += failure.failed ? 0 : 1;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 10'000);
}

TEST(TokenizerFiles, survive_mutation_of_a_sentencepiece_model) {
  expect_robust(toy_model(), [](const std::string& file) {
    return read_sentencepiece_model(bytes_of(file), "m").vocabulary;
  });
}

TEST(TokenizerFiles, survive_mutation_of_a_tok_bin) {
  expect_robust(toy_tok_bin(),
                [](const std::string& file) { return read_tok_bin(bytes_of(file), "m"); });
}

TEST(TokenizerFiles, survive_mutation_of_a_tokenizer_json) {
  const auto read = [](const std::string& file) {
    return read_tokenizer_json(parse_json(file, "m"), "m");
  };
  Vocabulary v = test::toy_sentencepiece({{"▁", -9}, {"a", -8}, {"b", -7}, {"ab", -1}});
  expect_robust(to_tokenizer_json(v).dump(), read);
  v = test::toy_byte_level({{"a", "b"}});
  v.pattern = kLlama3Pattern;
  v.nfc = v.add_bos = true;
  expect_robust(to_tokenizer_json(v).dump(), read);
}

}  // namespace
}  // namespace hone::text
