// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/optim_peers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "hone/core/error.h"
#include "hone/measure/measure.h"
#include "tests/support/error_of.h"
#include "tests/support/scripted_clock.h"
#include "tests/support/test_data.h"

namespace hone::bench {
namespace {

// A shell script in the place of optim_step.py, which writes down what it is asked.
class OptimPeersTest : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("HONE_PEER_PYTHON", "/bin/sh", 1);
    ::setenv("HONE_PEERS", folder_.path().c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("HONE_PEER_PYTHON");
    ::unsetenv("HONE_PEERS");
  }
  void script(const std::string& text) {
    std::ofstream(folder_.path() / "optim_step.py") << "log=" << log_path() << '\n' << text;
  }
  std::string log_path() const { return (folder_.path() / "log").string(); }
  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(log_path()).rdbuf();
    return text.str();
  }
  BenchCase make_case() {
    BenchCase bench_case;
    bench_case.name = "24x1024/adamw";
    bench_case.contestants = {{.name = "hone", .run = [this] { clock_.advance(0.125); }}};
    bench_case.ours = {true};
    bench_case.extra = {Json::object()};
    return bench_case;
  }
  Json report(const BenchCase& bench_case) {
    BenchRun run(*measurer_, {.repeat = 3});
    run.add(bench_case);
    return run.report();
  }

  const test::TemporaryFolder folder_;
  test::ScriptedClock clock_;
  std::unique_ptr<Measurer> measurer_ = measure::make_measurer(clock_);
};

constexpr const char* kSteps = R"(echo "$*" > $log
echo '{"ready":true,"implementation":"scripted 1.0","state_bytes_per_param":2.5}'
while read question; do
  echo "$question" >> $log
  case "$question" in
    *wake*) echo '{"done":true}';;
    *) echo '{"seconds":0.25}';;
  esac
done
)";

TEST_F(OptimPeersTest, a_peer_is_told_the_tensors_woken_before_each_step_and_timed_by_itself) {
  script(kSteps);
  BenchCase bench_case = make_case();
  add_optim_peer("torchao_8bit", {.tensors = 24, .elements = 1024, .threads = 2}, bench_case);
  const Json result = report(bench_case);
  const Json row = result["rows"][1];
  EXPECT_EQ(row["impl"], "torchao_8bit");
  EXPECT_EQ(row["median_ms"], 250);
  EXPECT_EQ(row["implementation"], "scripted 1.0");
  EXPECT_EQ(row["state_bytes_per_param"], 2.5);
  EXPECT_FALSE(row.contains("ready"));
  EXPECT_EQ(result["ratios"][0]["against"], "torchao_8bit");
  EXPECT_EQ(result["ratios"][0]["ratio"], 2);
  std::string questions = "--peer torchao_8bit --tensors 24 --elements 1024 --threads 2\n";
  for (int round = 0; round < 2 + 3; ++round) {  // two of them to warm up
    questions += "{\"op\":\"wake\"}\n{\"op\":\"step\"}\n";
  }
  EXPECT_EQ(log(), questions);
}

TEST_F(OptimPeersTest, a_peer_that_is_missing_or_cannot_run_here_has_a_row_that_says_absent) {
  for (const char* text : {"", "exit 1\n", R"(echo '{"ready":false,"error":"no torchao"}')"}) {
    script(text);
    BenchCase bench_case = make_case();
    add_optim_peer("torchao_8bit", {.tensors = 1, .elements = 1}, bench_case);
    const Json rows = report(bench_case)["rows"];
    ASSERT_EQ(rows.size(), 2u) << text;
    EXPECT_EQ(rows[1],
              (Json{{"case", "24x1024/adamw"}, {"impl", "torchao_8bit"}, {"status", "absent"}}));
  }
  std::filesystem::remove(folder_.path() / "optim_step.py");
  BenchCase bench_case = make_case();
  add_optim_peer("deepspeed", {.tensors = 1, .elements = 1}, bench_case);
  EXPECT_EQ(bench_case.absent, std::vector<std::string>{"deepspeed"});
}

TEST_F(OptimPeersTest, a_peer_that_fails_in_a_step_ends_the_run_with_its_reason) {
  script(R"(echo '{"ready":true}'
while read question; do echo '{"error":"out of memory"}'; done
)");
  BenchCase bench_case = make_case();
  add_optim_peer("bitsandbytes_8bit", {.tensors = 1, .elements = 1}, bench_case);
  EXPECT_NE(hone::test::error_of([&] { report(bench_case); }).find("out of memory"),
            std::string::npos);
}

}  // namespace
}  // namespace hone::bench
