// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

TEST_F(Cli, bench_takes_as_many_rounds_as_told_by_either_name) {
  const Arguments bench{"bench", "llm", "--model", write_tiny_model(), "--pp", "4", "--tg", "3"};
  for (const auto& [option, rounds] :
       {std::pair<const char*, Index>{"--repeat", 2}, {"--iterations", 3}}) {
    const Json report = json_of(bench + Arguments{option, std::to_string(rounds)});
    ASSERT_EQ(report.at("rows").size(), 2u);
    for (const Json& row : report.at("rows")) EXPECT_EQ(row.at("n"), rounds) << option;
  }
  expect_refusal(bench + Arguments{"--iterations", "0"}, 2, "--repeat: expected");
}

TEST_F(Cli, bench_llm_decodes_several_sequences_and_draws_beside_one_greedy_sequence) {
  const Arguments bench{"bench", "llm",  "--model", write_tiny_model(), "--pp",
                        "4",     "--tg", "3",       "--iterations",     "5"};
  const Json report = json_of(bench + Arguments{"--batch", "1,3", "--depth", "40", "--sampled",
                                                "--against", "ik_llama_cpp"});
  std::map<std::string, Json> rows;
  for (const Json& row : report.at("rows")) {
    const std::string name = row.at("case");
    if (name.ends_with("tg3@40")) rows[row.at("impl")] = row;
  }
  for (const char* kind : {"hone", "hone sampled", "hone top_p"}) {
    ASSERT_TRUE(rows.contains(kind) && rows.contains(concat(kind, " x3"))) << kind;
    const Json &one = rows[kind], &three = rows[concat(kind, " x3")];
    EXPECT_NEAR(one["tokens_per_s"].get<double>() * one["median_ms"].get<double>(), 3e3, 1e-3);
    EXPECT_NEAR(three["tokens_per_s"].get<double>() * three["median_ms"].get<double>(), 9e3, 1e-3);
    const double bytes = one["gb_per_s"].get<double>() * one["median_ms"].get<double>();
    const double more = three["gb_per_s"].get<double>() * three["median_ms"].get<double>();
    EXPECT_GT(more, bytes) << "more keys and values";
    EXPECT_LT(more, 3 * bytes) << "the same weights";
  }
  EXPECT_EQ(rows["ik_llama_cpp"]["status"], "absent");
  Index rates = 0, times = 0, checked = 0;
  for (const Json& row : report.at("quotients")) {
    const std::string name = row.at("name");
    rates += name.ends_with("/ x1, tokens/s");
    times += name.ends_with("/ greedy, time");
    if (name != "hone x3 / x1, tokens/s" || row.at("case") != rows["hone"]["case"]) continue;
    const double quotient =
        rows["hone x3"]["tokens_per_s"].get<double>() / rows["hone"]["tokens_per_s"].get<double>();
    EXPECT_NEAR(row.at("quotient").get<double>(), quotient, 1e-6 * quotient);
    EXPECT_LE(row.at("ci")[0].get<double>(), quotient * 1.001);
    ++checked;
  }
  EXPECT_EQ(checked, 1);
  EXPECT_EQ(rates, 3);
  EXPECT_EQ(times, 4);
  for (const auto& [option, value] :
       std::vector<std::pair<const char*, const char*>>{{"--batch", "0"},
                                                        {"--batch", "65"},
                                                        {"--against", "vllm"},
                                                        {"--json-schema", "{\"a\""}}) {
    const ProgramResult refused = run_hone(bench + Arguments{option, value});
    EXPECT_TRUE(refused.status == 2 || refused.status == 3) << option << " " << refused.status;
    EXPECT_TRUE(refused.err.starts_with("hone: ")) << refused.err;
  }
}

TEST_F(Cli, bench_llm_decodes_under_a_schema_that_does_not_let_the_text_end) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(tokenizer, "lm/tok512.bin");
  json_of({"convert", model.string(), path("m.gguf"), "--tokenizer", tokenizer.string()});
  const Arguments bench{"bench", "llm",          "--model", path("m.gguf"), "--pp", "4", "--tg",
                        "9",     "--iterations", "2",       "--json-schema"};
  const Json report = json_of(bench + Arguments{"{\"type\": \"array\", \"minItems\": 100}"});
  ASSERT_EQ(report.at("rows").size(), 3u);
  EXPECT_EQ(report.at("rows")[2]["impl"], "hone schema");
  EXPECT_EQ(report.at("quotients")[0]["name"], "hone schema / greedy, time");
  const ProgramResult ended = run_hone(bench + Arguments{"{\"enum\": [1]}"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, HasSubstr("must not let it end"));
}

TEST_F(Cli, bench_layers_prints_one_document_and_writes_its_plots) {
  if (!has_libtorch()) GTEST_SKIP() << "built without LibTorch";
  const Arguments bench{"bench",  "layers", "--shape",  "24x16", "--batch", "2",
                        "--rank", "4",      "--repeat", "2",     "--plots", path("plots")};
  const Json report = json_of(bench + Arguments{"--pass", "forward,train", "--mode", "sketched"});
  ASSERT_EQ(report.at("rows").size(), 2u * 3u);
  for (const Json& row : report.at("rows")) {
    EXPECT_TRUE(row.contains("rel_error") && row.contains("stored_count")) << row;
  }
  for (const char* file :
       {"landscape.svg", "pareto.svg", "layers.csv", "layers.json", "report.html", "report.json"}) {
    EXPECT_GT(std::filesystem::file_size(path("plots") + "/" + file), 0u) << file;
  }
  EXPECT_THAT(read_text_file(path("plots") + "/landscape.svg"), HasSubstr("</svg>"));
  write_text_file(path("plots") + "/mine", "mine");
  expect_refusal(bench, 2, "not part of the plots");
  EXPECT_EQ(read_text_file(path("plots") + "/mine"), "mine");
  struct Refused {
    const char *option, *value, *text;
  };
  for (const auto& [option, value, text] :
       std::vector<Refused>{{"--shape", "4096", "a shape as inputs x outputs"},
                            {"--shape", "0x0", "got 0x0"},
                            {"--conv", "1x1", "a convolution as inputs x outputs"},
                            {"--batch", "-1", "a batch of 1 to"},
                            {"--batch", "many", "--batch"},
                            {"--rank", "3", "an even rank"},
                            {"--terms", "2", "Terms and low ranks"},
                            {"--low-rank", "0", "Terms and low ranks"},
                            {"--grid", "all", "grid 'all'"},
                            {"--grid", "", "grid"},
                            {"--mode", "dense", "mode 'dense'"},
                            {"--fit", "none", "fit 'none'"},
                            {"--pass", "back", "pass 'back'"},
                            {"--against", "panther", "contestant 'panther'"},
                            {"--plots", "", "plots"}}) {
    expect_refusal({"bench", "layers", option, value}, 2, text);
  }
}

TEST_F(Cli, benches_of_linear_algebra_and_attention_have_errors_beside_times) {
  if (!has_libtorch()) {
    GTEST_SKIP() << "without LibTorch";
  }
  const Arguments linalg{"bench", "linalg", "--iterations", "1"};
  const Arguments attention{"bench",   "attention", "--iterations", "1",
                            "--heads", "2",         "--dim",        "8"};
  const Json report = json_of(linalg + Arguments{"--op", "rsvd,srht", "--shape", "40x32", "--rank",
                                                 "5", "--dtype", "f32,f64", "--spectrum", "power"});
  EXPECT_GE(report.at("rows").size(), 2u * (3u + 5u));
  for (const Json& row : report.at("rows")) {
    EXPECT_TRUE(row.contains("rel_error") || row.contains("status")) << row;
  }
  const Json heads =
      json_of(attention + Arguments{"--seq", "16,64", "--features", "8", "--causal"});
  EXPECT_EQ(heads.at("rows").size(), 4u);
  for (const Json& row : heads.at("rows")) EXPECT_TRUE(row.contains("rel_error")) << row;
  EXPECT_EQ(heads.at("exponents").size(), 4u);
  for (const auto& [command, words] : std::vector<std::pair<Arguments, const char*>>{
           {linalg + Arguments{"--op", "lu"}, "got lu"},
           {linalg + Arguments{"--shape", "0x9"}, "got 0x9"},
           {linalg + Arguments{"--rank", "101", "--shape", "100x100"}, "got 101"},
           {attention + Arguments{"--norm", "nan"}, "a norm above 0, at most 1e6"},
           {attention + Arguments{"--kernel", "cos"}, "got cos"}}) {
    const ProgramResult result = run_hone(command);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
  }
}

}  // namespace
}  // namespace hone::test
