// SPDX-License-Identifier: Apache-2.0
// What commands print for people.
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class ReadableOutput : public Cli {
 protected:
  ReadableOutput() : model_(write_tiny_model()) {}
  static std::string out_of(const Arguments& arguments) {
    const ProgramResult result = run_hone(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  }
  // The words of the line that begins with these.
  static std::vector<std::string> row(const std::string& text, const std::string& first) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(first + " ")) continue;
      std::istringstream rest(line.substr(first.size()));
      return {std::istream_iterator<std::string>(rest), {}};
    }
    ADD_FAILURE() << "no line " << first << " in " << text;
    return {"", "", ""};
  }
  std::string model_;
};

TEST_F(ReadableOutput, inspect_sums_up_the_types_of_tensors) {
  ASSERT_EQ(run_hone({"convert", model_, path("m.gguf"), "--dtype", "q8_0"}).status, 0);
  const Json document = json_of({"inspect", path("m.gguf")});
  const std::string text = out_of({"inspect", path("m.gguf")});
  EXPECT_EQ(row(text, "format"), std::vector<std::string>{"gguf"});
  EXPECT_EQ(row(text, "context")[0], "64");
  EXPECT_THAT(text, HasSubstr("llama, 2 layers of 32, MLP of 40, 4 heads of 16, 2 for keys"));
  EXPECT_THAT(text, ContainsRegex("tokenizer +SentencePiece BPE, 48 tokens, adds BOS"));
  double share = 0;
  Index tensors = 0;
  for (const char* type : {"q8_0", "f16", "f32"}) {
    Index bytes = 0, count = 0, all = 0;
    for (const Json& tensor : document["tensors"]) {
      all += tensor["bytes"].get<Index>();
      if (tensor["dtype"] != type) continue;
      ++count;
      bytes += tensor["bytes"].get<Index>();
    }
    const auto words = row(text, type);  // tensors, size, unit, share, %
    ASSERT_EQ(words.size(), 5u) << text;
    EXPECT_EQ(std::stoll(words[0]), count) << type;
    EXPECT_NEAR(std::stod(words[3]), 100.0 * static_cast<double>(bytes) / static_cast<double>(all),
                0.051);
    share += std::stod(words[3]);
    tensors += count;
  }
  EXPECT_NEAR(share, 100, 0.2);
  EXPECT_EQ(tensors, std::ssize(document["tensors"]));
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  EXPECT_THAT(text, Not(HasSubstr(name)));
  EXPECT_THAT(out_of({"inspect", path("m.gguf"), "-v"}),
              AllOf(HasSubstr(name), ContainsRegex("rope.base +10000")));
  EXPECT_THAT(out_of({"inspect", path("m.gguf"), "--stats"}),
              AllOf(HasSubstr(name), HasSubstr("NaN")));
}

TEST_F(ReadableOutput, eval_aligns_the_figures_of_the_card) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += concat(static_cast<char>('a' + i % 7), " ");
  write_text_file(path("text"), words);
  const Arguments eval{"eval", model_, "--data", path("text"), "--weights", "q4"};
  const Json card = json_of(eval + Arguments{"--baseline", model_});
  const std::string text = out_of(eval + Arguments{"--baseline", model_});
  const auto expect = [&](const char* name, double value, double error, const char* unit) {
    const auto found = row(text, name);
    EXPECT_NEAR(std::stod(found[0]), value, error) << name;
    EXPECT_THAT(text, ContainsRegex(concat(name, " +", found[0], " *", unit)));
  };
  expect("tokens predicted", card["tokens"].get<double>(), 0, "in 1 window of up to 64");
  expect("perplexity", card["perplexity"].get<double>(), 6e-5, "\\[");
  expect("cross-entropy", card["nll"].get<double>(), 6e-5, "nats a token");
  expect("perplexity ratio", card["ppl_ratio"].get<double>(), 6e-5, "\\[");
  expect("KL divergence, mean", card["kl_mean"].get<double>(), 6e-6, "nats a token");
  expect("KL, 99 % below", card["kl_p99"].get<double>(), 6e-6, "nats a token");
  expect("top-1 agreement", 100 * card["top1_agreement"].get<double>(), 0.006, "% of the tokens");
  EXPECT_THAT(text, HasSubstr(concat(
                        "[", std::to_string(card["ppl_ratio_ci"][0].get<double>()).substr(0, 5))));
  EXPECT_THAT(out_of(eval), Not(HasSubstr("KL")));
}

TEST_F(ReadableOutput, all_means_every_token_and_contradicts_a_limit) {
  write_text_file(path("text"), "a b c d e f g h i j k l m n o p");
  const Arguments eval{"eval", model_, "--data", path("text")};
  const Json all = json_of(eval + Arguments{"--all"});
  EXPECT_EQ(all["tokens"], json_of(eval)["tokens"]);
  EXPECT_LT(json_of(eval + Arguments{"--max-tokens", "4"})["tokens"], all["tokens"]);
  expect_refusal(eval + Arguments{"--all", "--max-tokens", "4"}, 2, "--all");
}

TEST_F(ReadableOutput, tensors_that_keep_their_types_take_one_line_for_each_reason) {
  const Arguments convert{"convert", model_, path("m.gguf"), "--dtype", "q8_0"};
  const std::string brief = out_of(convert), full = out_of(convert + Arguments{"-v"});
  const Json kept = json_of(convert)["kept"];
  ASSERT_EQ(kept.size(), 2u);  // 40 columns
  const std::string name = kept[0]["name"].get<std::string>();
  EXPECT_THAT(brief, AllOf(HasSubstr("2 tensors are written as f16: "), Not(HasSubstr(name))));
  EXPECT_EQ(std::ranges::count(brief, '\n'), 2);
  EXPECT_THAT(full, HasSubstr(name + "' is written as f16: "));
  EXPECT_EQ(std::ranges::count(full, '\n'), 3);
  const Arguments generate{"generate", model_, "-p", "a", "-n", "1", "--weights", "q8"};
  EXPECT_THAT(run_hone(generate).err, HasSubstr("2 tensors stay f16: "));
  EXPECT_THAT(run_hone(generate + Arguments{"-v"}).err, HasSubstr(name + "' stays f16: "));
}

}  // namespace
}  // namespace hone::test
