// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

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

}  // namespace
}  // namespace hone::test
