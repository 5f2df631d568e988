// SPDX-License-Identifier: Apache-2.0
#include "hone/data/text_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "tests/support/test_data.h"

namespace hone::data {
namespace {

void expect_corrupt(const std::filesystem::path& path, std::string_view part) {
  try {
    load_text(path);
    ADD_FAILURE() << path << " accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::CorruptFile) << error.what();
    const std::string_view message = error.what();
    EXPECT_NE(message.find(path.filename().string()), std::string_view::npos) << message;
    EXPECT_NE(message.find(part), std::string_view::npos) << message;
  }
}

TEST(TextSource, single_text_keeps_back_its_last_tenth_at_a_line_end) {
  const test::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(1000 + i) + "\n";
  write_text_file(folder.path() / "a.txt", text);
  const TextCorpus corpus = load_text(folder.path() / "a.txt");
  ASSERT_EQ(corpus.train.size(), 1u);
  ASSERT_EQ(corpus.held_out.size(), 1u);
  EXPECT_EQ(corpus.train[0] + corpus.held_out[0], text);
  EXPECT_EQ(corpus.train[0].back(), '\n');
  EXPECT_TRUE(corpus.held_out[0].starts_with("line 109"));
  EXPECT_NEAR(static_cast<double>(corpus.held_out_bytes()) / static_cast<double>(text.size()), 0.1,
              0.02);
}

TEST(TextSource, a_text_without_lines_is_cut_between_characters) {
  std::string text;
  for (int i = 0; i < 33; ++i) text += "\xE2\x82\xAC";  // three bytes each
  const Index begin = held_out_begin(text);
  EXPECT_EQ(begin % 3, 0);
  EXPECT_NEAR(static_cast<double>(begin), 90, 3);
}

TEST(TextSource, folder_keeps_back_every_tenth_file_in_order) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "sub");
  for (int i = 0; i < 25; ++i) {
    const std::string name = "f" + std::to_string(100 + i) + (i % 2 != 0 ? ".txt" : ".MD");
    write_text_file(folder.path() / (i < 20 ? "" : "sub") / name, "text " + std::to_string(i));
  }
  write_text_file(folder.path() / ".hidden.txt", "hidden");
  write_text_file(folder.path() / "image.png", "\xff\xff");
  set_log_level(LogLevel::Warning);
  testing::internal::CaptureStderr();
  const TextCorpus corpus = load_text(folder.path());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("1 file is skipped"));
  EXPECT_EQ(corpus.train.size(), 23u);
  EXPECT_EQ(corpus.held_out, (std::vector<std::string>{"text 9", "text 19"}));
}

TEST(TextSource, few_documents_are_each_split) {
  const TextCorpus corpus = split_documents("two", {"0123456789", "abcdefghij"});
  EXPECT_EQ(corpus.train, (std::vector<std::string>{"012345678", "abcdefghi"}));
  EXPECT_EQ(corpus.held_out, (std::vector<std::string>{"9", "j"}));
}

TEST(TextSource, json_lines_keep_back_every_tenth_record) {
  const test::TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 20; ++i) {
    lines += R"({"id": )" + std::to_string(i) + R"(, "text": "caf\u00e9 )" + std::to_string(i) +
             "\"}\r\n\n";
  }
  write_text_file(folder.path() / "a.jsonl", lines);
  const TextCorpus corpus = load_text(folder.path() / "a.jsonl");
  EXPECT_EQ(corpus.train.size(), 18u);
  EXPECT_EQ(corpus.held_out, (std::vector<std::string>{"café 9", "café 19"}));
}

TEST(TextSource, bad_input_is_one_error_that_names_the_place) {
  const test::TemporaryFolder folder;
  const auto write = [&](const char* name, std::string_view text) {
    write_text_file(folder.path() / name, text);
    return folder.path() / name;
  };
  expect_corrupt(write("a.txt", "good \xff bad"), "offset 5");
  expect_corrupt(write("surrogate.txt", "caf\xC3\xA9 \xED\xA0\x80"), "offset 6");
  expect_corrupt(write("overlong.txt", "\xE0\x9F\xBF"), "offset 0");
  expect_corrupt(write("cut.txt", "cut \xF0\x9F\x98"), "offset 4");
  expect_corrupt(write("empty.txt", ""), "There is no text");
  expect_corrupt(write("a.jsonl", "{\"text\": \"x\"}\n{\"text\": 3}\n"), "line 2");
  expect_corrupt(write("b.jsonl", "{\"text\": \"x\"}\n{\"text\": \n"), "line 2");
  expect_corrupt(write("c.jsonl", "[1]\n"), "\"text\"");
  std::filesystem::create_directory(folder.path() / "nothing");
  expect_corrupt(folder.path() / "nothing", "There is no text");
  EXPECT_THROW(load_text(folder.path() / "absent.txt"), Error);
}

TEST(TextSource, drops_a_byte_order_mark) {
  const test::TemporaryFolder folder;
  write_text_file(folder.path() / "a.txt", "\xEF\xBB\xBFhello world, this is it");
  EXPECT_TRUE(load_text(folder.path() / "a.txt").train[0].starts_with("hello"));
}

TEST(TextSource, story_corpus_is_reproducible_and_has_separate_series) {
  const StoryGrammar grammar;
  const TextCorpus a = generate_story_corpus(grammar, 1, {50, 20});
  const TextCorpus b = generate_story_corpus(grammar, 1, {60, 20});
  EXPECT_TRUE(std::equal(a.train.begin(), a.train.end(), b.train.begin()));
  EXPECT_EQ(a.held_out, b.held_out);
  EXPECT_NE(a.train[0], a.held_out[0]);
  EXPECT_EQ(a.held_out[3], generate_story(grammar, 1, StorySeries::HeldOut, 3) + "\n");
  EXPECT_EQ(grammar.recognize(join_documents(a.train)).finished, 50);
}

TEST(TextSource, reads_real_text) {
  HONE_REQUIRE_TEST_DATA(path, "text/tinyshakespeare.txt");
  const TextCorpus corpus = load_text(path);
  EXPECT_EQ(corpus.train_bytes() + corpus.held_out_bytes(),
            static_cast<Index>(std::filesystem::file_size(path)));
  EXPECT_NEAR(static_cast<double>(corpus.held_out_bytes()), 111539, 100);
}

}  // namespace
}  // namespace hone::data
