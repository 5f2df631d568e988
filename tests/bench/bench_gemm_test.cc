// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_gemm.h"
#include "hone/core/machine/machine_card.h"
#include "hone/kernels/roof/memory_roofs.h"
#include "hone/measure/measure.h"

#include <gtest/gtest.h>

#include "hone/core/error.h"
#include "hone/core/thread/thread_pool.h"

namespace hone::bench {
namespace {

BenchGemmOptions small_options() {
  BenchGemmOptions options;
  options.formats = {"f32", "bf16", "q8_0", "q4_0", "q5_1", "int8:row", "int4:g64:asym"};
  options.rows = {1, 20};
  options.shapes = {{96, 64}};
  options.cold = false;
  return options;
}

Json run_bench(const BenchGemmOptions& options, const GemmContestants& contestants) {
  const auto measurer = measure::make_measurer();
  ThreadPool pool(1);
  BenchRun run(*measurer, {.quick = true, .repeat = 3});
  bench_gemm(options, run, *measurer, pool, contestants);
  return run.report();
}

TEST(BenchGemm, has_a_row_for_every_format_and_row_count) {
  const Json report = run_bench(small_options(), {});
  ASSERT_EQ(report["rows"].size(), 14u);
  EXPECT_TRUE(report["ratios"].empty());
  const Json& first = report["rows"][0];
  EXPECT_EQ(first["case"], "96x64/f32/m1/hot");
  EXPECT_EQ(first["layout"], "f32");
  EXPECT_EQ(first["weight_bytes"], 96 * 64 * 4);
  EXPECT_EQ(first["threads"], 1);
  EXPECT_GT(first["share_of_roof"].get<double>(), 0);
  const Json& last = report["rows"][13];
  EXPECT_EQ(last["case"], "96x64/int4:g64:asym/m20/hot");
  EXPECT_EQ(last["layout"], "q4x16");
  EXPECT_FALSE(last["kernel"].get<std::string>().empty());
  EXPECT_GT(last["gflop_per_s"].get<double>(), 0);
}

TEST(BenchGemm, cold_cases_cycle_through_more_weights_than_the_caches_hold) {
  BenchGemmOptions options = small_options();
  options.formats = {"f32"};
  options.rows = {1};
  options.shapes = {{1024, 1024}};
  options.cold = true;
  options.hot = false;
  options.cold_bytes = Index{8} << 20;
  Index copies = 0, calls = 0;
  const GemmContestants contestants{{.name = "counted", .make = [&](const GemmProblem& problem) {
                                       EXPECT_EQ(problem.x.size(), 1024u);
                                       EXPECT_EQ(problem.weight.size(), 1024u * 1024u);
                                       EXPECT_EQ(problem.threads, 1);
                                       copies = problem.copies;
                                       return std::function<void()>([&] { ++calls; });
                                     }}};
  const Json report = run_bench(options, contestants);
  EXPECT_GE(copies, 2);
  EXPECT_GE(calls, 3);
  ASSERT_EQ(report["rows"].size(), 2u);
  EXPECT_EQ(report["rows"][0]["case"], "1024x1024/f32/m1/cold");
  EXPECT_EQ(report["rows"][1]["impl"], "counted");
  ASSERT_EQ(report["ratios"].size(), 1u);
}

TEST(BenchGemm, quantized_formats_meet_f32_contestants_in_a_case_of_their_own) {
  BenchGemmOptions options = small_options();
  options.formats = {"q8_0"};
  options.rows = {1};
  const GemmContestants contestants{
      {.name = "idle", .make = [](const GemmProblem&) { return std::function<void()>([] {}); }}};
  const Json report = run_bench(options, contestants);
  ASSERT_EQ(report["rows"].size(), 3u);
  EXPECT_EQ(report["rows"][0]["case"], "96x64/q8_0/m1/hot");
  EXPECT_EQ(report["rows"][1]["case"], "96x64/q8_0/m1/hot/against_f32");
  EXPECT_FALSE(report["rows"][1].contains("gb_per_s"));
  EXPECT_EQ(report["rows"][2]["impl"], "idle");
  EXPECT_EQ(report["ratios"][0]["case"], "96x64/q8_0/m1/hot/against_f32");
}

TEST(BenchGemm, software_that_is_not_in_the_build_is_listed_as_absent) {
  BenchGemmOptions options = small_options();
  options.formats = {"f32"};
  options.rows = {1};
  const Json report = run_bench(options, absent_gemm_contestants());
  ASSERT_EQ(report["rows"].size(), 2u);
  EXPECT_EQ(report["rows"][1]["impl"], "torch_linear");
  EXPECT_EQ(report["rows"][1]["status"], "absent");
}

TEST(BenchGemm, refuses_unknown_formats_and_impossible_shapes) {
  BenchGemmOptions options = small_options();
  options.formats = {"q5_9"};
  EXPECT_THROW(run_bench(options, {}), Error);
  options.formats = {"q8_0"};
  options.shapes = {{16, 33}};
  EXPECT_THROW(run_bench(options, {}), Error);
  options.formats = {"q4_k"};
  options.shapes = {{16, 64}};
  EXPECT_THROW(run_bench(options, {}), Error);
  options.shapes = {{0, 32}};
  EXPECT_THROW(run_bench(options, {}), Error);
}

}  // namespace
}  // namespace hone::bench
