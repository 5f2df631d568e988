// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <filesystem>
#include <utility>

#include "hone/core/file_io.h"
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
  expect_refusal(bench + Arguments{"--iterations", "0"}, 2);
}

TEST_F(Cli, bench_layers_prints_one_document_and_writes_its_plots) {
  if (!std::filesystem::exists(std::filesystem::path(HONE_PROGRAM).parent_path() / "hone-torch"))
    GTEST_SKIP() << "built without LibTorch";
  const Arguments bench{"bench",  "layers", "--shape",  "24x16", "--batch", "2",
                        "--rank", "4",      "--repeat", "2",     "--plots", path("plots")};
  const Json report = json_of(bench + Arguments{"--pass", "forward,train", "--mode", "sketched"});
  ASSERT_EQ(report.at("rows").size(), 2u * 3u);
  for (const Json& row : report.at("rows")) {
    EXPECT_TRUE(row.contains("rel_error") && row.contains("stored_count")) << row;
  }
  for (const char* file :
       {"landscape.svg", "pareto.svg", "layers.csv", "layers.json", "report.html", "report.json"}) {
    EXPECT_TRUE(std::filesystem::exists(path("plots") + "/" + file)) << file;
  }
  write_text_file(path("plots") + "/mine", "mine");
  expect_refusal(bench, 2);
  for (const auto& [option, value] :
       std::vector<std::pair<const char*, const char*>>{{"--shape", "4096"},
                                                        {"--shape", "0x0"},
                                                        {"--conv", "1x1"},
                                                        {"--batch", "-1"},
                                                        {"--batch", "many"},
                                                        {"--rank", "3"},
                                                        {"--terms", "2"},
                                                        {"--low-rank", "0"},
                                                        {"--grid", "all"},
                                                        {"--grid", ""},
                                                        {"--mode", "dense"},
                                                        {"--fit", "none"},
                                                        {"--pass", "back"},
                                                        {"--against", "panther"},
                                                        {"--plots", ""}}) {
    expect_refusal({"bench", "layers", option, value}, 2);
  }
}

TEST_F(Cli, benches_of_linear_algebra_and_attention_have_errors_beside_times) {
  if (!std::filesystem::exists(std::filesystem::path(HONE_PROGRAM).parent_path() / "hone-torch")) {
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
