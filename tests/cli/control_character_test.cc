// SPDX-License-Identifier: Apache-2.0
// Names and texts from files reach a terminal with their control characters escaped, and JSON as
// they are.
#include <gmock/gmock.h>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

// Escape, bell, newline, DEL, CSI as C1 in UTF-8; é is none of them.
constexpr const char* kName = "a\x1b[31m\a\nb\x7f\xc2\x9b\xc3\xa9";
constexpr const char* kShown = "a\\x1b[31m\\x07\\x0ab\\x7f\\xc2\\x9b\xc3\xa9";

void expect_clean(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    EXPECT_TRUE((byte >= 0x20 && byte != 0x7f) || byte == '\n') << "byte " << int{byte};
    EXPECT_FALSE(byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0);
  }
}

TEST_F(Cli, inspect_escapes_the_names_of_tensors_and_metadata) {
  const Json header = {{"__metadata__", {{kName, kName}}},
                       {kName, {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}}}};
  const std::string json = header.dump();
  std::string file(8, '\0');
  const auto length = static_cast<std::uint64_t>(json.size());
  std::memcpy(file.data(), &length, sizeof length);
  write_text_file(path("x.safetensors"), file + json + std::string(4, '\0'));
  const std::string text = run_hone({"inspect", path("x.safetensors"), "-v"}).out;
  expect_clean(text);
  EXPECT_THAT(text, HasSubstr(concat("metadata.", kShown)));
  EXPECT_THAT(text, HasSubstr(concat("\n  ", kShown, "  f32")));
  EXPECT_EQ(json_of({"inspect", path("x.safetensors")})["tensors"][0]["name"], kName);
}

TEST_F(Cli, tokenize_escapes_pieces) {
  text::Vocabulary vocabulary = tiny_sentencepiece(48);
  vocabulary.pieces[10] = "\x7f";
  vocabulary.pieces[11] = "\xc2\x9b";
  const auto tokenizer = text::make_tokenizer(vocabulary);
  const TinyModel model(tiny_architecture());
  write_hugging_face(path("hf"), model.source(tokenizer.get()));
  const Arguments arguments{"tokenize", path("hf"), "-p", "\x7f\xc2\x9b"};
  const std::string text = run_hone(arguments).out;
  expect_clean(text);
  EXPECT_THAT(text, HasSubstr("10  \"\\x7f\"\n"));
  EXPECT_THAT(text, HasSubstr("11  \"\\xc2\\x9b\"\n"));
  EXPECT_THAT(json_of(arguments)["pieces"].dump(), HasSubstr("\xc2\x9b"));
}

TEST_F(Cli, errors_and_results_escape_the_names_of_files) {
  expect_refusal({"inspect", path(kName)}, 3);
  expect_clean(run_hone({"inspect", path(kName)}).err);
  expect_clean(run_hone({"inspect", "--stats", "--", "--bogus\x1b[31m"}).err);
  const ProgramResult result = run_hone({"convert", write_tiny_model(), path(kName)});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_clean(result.out);
  EXPECT_THAT(result.out, HasSubstr(kShown));
}

}  // namespace
}  // namespace hone::test
