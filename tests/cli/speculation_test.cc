// SPDX-License-Identifier: Apache-2.0
// `hone generate --draft` and `hone bench llm --spec`.
#include <gmock/gmock.h>

#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

class SpeculationCli : public Cli {
 protected:
  void SetUp() override { model_ = write_tiny_model(); }
  Arguments generate(const Arguments& options) const {
    const Arguments words{"generate", model_, "-p", "abab abab", "-n", "40", "--ignore-eos"};
    return words + options;
  }
  std::string model_;
};

TEST_F(SpeculationCli, drafts_leave_texts_as_they_are_and_are_counted) {
  const Arguments seeded{"--seed", "5", "--temp", "0.5"};
  const Json plain = json_of(generate(seeded));
  EXPECT_FALSE(plain.contains("spec"));
  for (const std::string& draft : {std::string("ngram"), model_}) {
    for (const char* depth : {"auto", "4"}) {
      const Json got = json_of(generate(seeded + Arguments{"--draft", draft, "--spec-k", depth}));
      EXPECT_EQ(got.at("text"), plain.at("text")) << draft;
      EXPECT_EQ(got.at("tokens"), plain.at("tokens")) << draft;
      const Json& spec = got.at("spec");
      for (const char* field :
           {"drafted", "examined", "accepted", "rounds", "k_mean", "per_position"}) {
        EXPECT_TRUE(spec.contains(field)) << field;
      }
      EXPECT_LE(spec.at("accepted"), spec.at("examined"));
      EXPECT_LE(spec.at("examined"), spec.at("drafted"));
      if (draft == model_) {
        EXPECT_GT(spec.at("drafted"), 0) << depth;
      }
    }
  }
}

TEST_F(SpeculationCli, a_seed_selects_the_coupled_rule_and_without_one_drafts_are_exact) {
  const auto text_of = [&](const Arguments& options) {
    return json_of(generate(Arguments{"--draft", model_, "--spec-k", "4"} + options)).at("tokens");
  };
  const Json plain = json_of(generate({})).at("tokens");  // seed 0
  EXPECT_NE(text_of({}), plain);
  EXPECT_EQ(text_of({}), text_of({"--spec-rule", "exact"}));
  EXPECT_EQ(text_of({"--spec-rule", "coupled"}), plain);
  EXPECT_EQ(text_of({"--seed", "0"}), plain);
  EXPECT_EQ(text_of({"--seed", "0", "--spec-rule", "exact"}), text_of({}));
}

TEST_F(SpeculationCli, lines_of_prompts_have_the_texts_that_they_have_without_drafts) {
  write_text_file(path("lines.jsonl"), "{\"prompt\": \"a\"}\n{\"prompt\": \"b c\"}\n");
  const auto texts = [&](const Arguments& options) {
    const Arguments batch{"generate", model_, "--prompts", path("lines.jsonl"), "--temp", "0.9"};
    const ProgramResult result = run_hone(batch + options);
    EXPECT_EQ(result.status, 0) << result.err;
    std::vector<Json> tokens;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
      tokens.push_back(parse_json(line, "stdout").at("tokens"));
    }
    return tokens;
  };
  const auto plain = texts({});
  EXPECT_EQ(plain.size(), 2u);
  EXPECT_EQ(texts({"--draft", model_, "--spec-k", "4"}), plain);
  EXPECT_NE(texts({"--draft", model_, "--spec-k", "4", "--spec-rule", "exact"}), plain);
}

TEST_F(SpeculationCli, draft_models_of_other_vocabularies_end_with_status_2) {
  text::Vocabulary vocabulary = tiny_sentencepiece(48);
  std::swap(vocabulary.pieces[40], vocabulary.pieces[41]);
  const auto other = text::make_tokenizer(std::move(vocabulary));
  const TinyModel model(tiny_architecture());
  write_hugging_face(path("other"), model.source(other.get()));
  expect_refusal(generate({"--draft", path("other")}), 2, "the model's vocabulary");
  expect_refusal(generate({"--draft", path("absent")}), 3, "no such file or folder");
  for (const char* depth : {"0", "17", "-1", "many", "4x", ""}) {
    expect_refusal(generate({"--draft", "ngram", "--spec-k", depth}), 2, "[--spec-k] expected");
  }
  expect_refusal(generate({"--draft", "ngram", "--spec-rule", "loose"}), 2, "--spec-rule: loose");
}

TEST_F(SpeculationCli, bench_measures_drafts_of_a_given_quality_beside_none) {
  const Arguments bench{"bench", "llm",           "--model", model_,     "--spec-sequences",
                        "1,3",   "--spec-tokens", "20",      "--repeat", "1"};
  const Json report = json_of(bench + Arguments{"--spec", "1,0", "--spec-k", "4"});
  const Json& rows = report.at("rows");
  ASSERT_EQ(rows.size(), 2u * 2 * 3);
  for (const Json& row : rows) {
    if (row.at("impl") != "drafts") {
      EXPECT_GT(row.at("tokens_per_s"), 0);
      continue;
    }
    const bool is_right = row.at("case").get<std::string>().find("spec1x") != std::string::npos;
    EXPECT_EQ(row.at("accepted"), is_right ? row.at("drafted") : Json(0)) << row;
    EXPECT_GT(row.at("examined"), 0);
  }
  EXPECT_EQ(report.at("ratios").size(), 4u);
  expect_refusal(bench + Arguments{"--spec", "1.5"}, 2, "[--spec] expected");
  expect_refusal(bench + Arguments{"--spec", "0.5", "--spec-k", "17"}, 2, "[--spec-k] expected");
}

}  // namespace
}  // namespace hone::test
