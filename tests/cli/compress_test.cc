// SPDX-License-Identifier: Apache-2.0
// What `hone compress` makes of recipes, options and models that it cannot use.
#include <gmock/gmock.h>

#include "hone/core/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Compress : public Cli {};

TEST_F(Compress, spares_its_inputs_and_says_why_nothing_is_written) {
  const std::string model = write_tiny_model(), out = path("small");
  ASSERT_EQ(run_hone({"compress", model, "-o", out, "--quantize", "int8:row"}).status, 0);
  write_text_file(out + "/recipe.toml",
                  "version = 1\n[[pass]]\nkind = \"quantize\"\nspec = \"int8:row\"\n");
  write_text_file(path("text.txt"), read_text_file(out + "/recipe.toml"));
  expect_refusal({"compress", model, "-o", out, "--recipe", out + "/recipe.toml"}, 2,
                 "must not contain the input");
  fs::copy_file(path("text.txt"), out + "/t.txt");
  expect_refusal({"compress", model, "-o", out, "--quantize", "int8:row", "--data", out + "/t.txt"},
                 2, "must not contain the input");
  expect_refusal({"compress", model, "-o", out, "--quantize", "int8:row"}, 2,
                 "not part of a model");
  EXPECT_TRUE(fs::exists(out + "/t.txt"));
}

TEST_F(Compress, names_what_it_cannot_use) {
  const std::string model = write_tiny_model(), out = path("small");
  const auto refuse = [&](const Arguments& more, int status) {
    expect_refusal(Arguments{"compress", model, "-o", out} + more, status);
    EXPECT_FALSE(fs::exists(out));
  };
  write_text_file(path("empty.txt"), "");
  write_text_file(path("short.txt"), "abc");
  write_text_file(path("latin.txt"), "caf\xe9 au lait, please\n");
  for (const char* data : {"none", "empty.txt", "short.txt", "latin.txt"})
    refuse({"--quantize", "int8:row", "--data", path(data)}, 3);
  refuse({"--quantize", "int8:row", "--recipe", path("none.toml")}, 2);
  refuse({"--recipe", path("none.toml")}, 3);
  refuse({"--recipe", folder_.path().string()}, 3);
  const std::string grammar = "int<2-8>:<row|gN>[:sym|:asym][:f32|:f16], N a multiple of 16";
  for (const char* spec : {"int9:row", "float", "int8:tensor", "int8:row:bf16"}) {
    refuse({"--quantize", spec}, 2);
    EXPECT_THAT(run_hone({"compress", model, "-o", out, "--quantize", spec}).err,
                HasSubstr(grammar));
  }
  std::string help = run_hone({"compress", "--help"}).out;
  for (const char c : {'\n', ' '}) std::erase(help, c);  // CLI11 breaks lines
  std::string wanted = grammar;
  std::erase(wanted, ' ');
  EXPECT_THAT(help, HasSubstr(wanted));
}

TEST_F(Compress, refuses_keys_without_an_end) {
  std::string key = "a";
  for (int i = 0; i < 50'000; ++i) key += ".a";
  const std::string file = path("d.toml"), model = write_tiny_model();
  for (const std::string& text :
       {key + "=1", "[" + key + "]", "[[" + key + "]]", "a={" + key + "=1}"}) {
    write_text_file(file, text);
    expect_refusal({"compress", model, "-o", path("small"), "--recipe", file}, 2);
  }
}

// The rows of the tiny model have 32, 40 and 64 columns.
TEST_F(Compress, refuses_groups_beyond_the_row_before_anything_is_written) {
  const std::string model = write_tiny_model(), out = path("small");
  const auto refuse = [&](const Arguments& more, const char* spec) {
    const ProgramResult result = run_hone(Arguments{"compress", model, "-o", out} + more);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr(spec), HasSubstr("32 columns of model.")));
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(fs::exists(out));
  };
  refuse({"--quantize", "int4:g48"}, "int4:g48");
  refuse({"--quantize", "int4:g4096:sym"}, "int4:g4096:sym");
  refuse({"--quantize", "int8:row", "--quantize", "int4:g4096"}, "int4:g4096");
  write_text_file(
      path("r.toml"),
      "version = 1\n[model]\nembedding = \"int8:g64\"\n[[pass]]\nkind = \"quantize\"\n");
  refuse({"--recipe", path("r.toml")}, "int8:g64");
  EXPECT_EQ(run_hone({"compress", model, "-o", out, "--quantize", "int4:g32"}).status, 0);
}

TEST_F(Compress, takes_the_tokenizer_that_a_model_lacks_and_eval_does_too) {
  const std::string with = write_tiny_model(), out = path("small"), bare = path("bare");
  write_hugging_face(bare, TinyModel(tiny_architecture()).source());
  const Arguments compress{"compress", bare, "-o", out, "--quantize", "int8:row"};
  expect_refusal(compress, 3, "no tokenizer");
  const Json made = json_of(compress + Arguments{"--tokenizer", with});
  EXPECT_EQ(made["passes"][0]["status"], "applied");
  EXPECT_EQ(run_hone({"generate", out, "-p", "a", "-n", "2"}).status, 0) << "it has one now";
  write_text_file(path("text.txt"), "abc def ghi jkl mno pqr stu vwx yz");
  const Arguments eval{"eval", bare, "--baseline", bare, "--data", path("text.txt")};
  expect_refusal(eval, 3, "no tokenizer");
  EXPECT_EQ(json_of(eval + Arguments{"--tokenizer", with})["ppl_ratio"], 1.0);
}

}  // namespace
}  // namespace hone::test
