// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_run.h"
#include "hone/kernels/roof/memory_roofs.h"
#include "hone/measure/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hone/core/error.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/measure/measure.h"
#include "tests/support/error_of.h"
#include "tests/support/scripted_clock.h"

namespace hone::bench {
namespace {

// Two of ours and one of theirs, each with an exact time.
class BenchRunTest : public testing::Test {
 protected:
  Contestant takes(const char* name, double seconds) {
    return {.name = name, .run = [this, seconds] { ++runs_, clock_.advance(seconds); }};
  }
  BenchCase make_case() {
    BenchCase bench_case;
    bench_case.name = "4x4";
    bench_case.contestants = {takes("q8", 0.001), takes("q4", 0.004), takes("torch", 0.002)};
    bench_case.ours = {true, true, false};
    bench_case.bytes = 8e6;
    bench_case.flops = 4e6;
    bench_case.memory = &memory_;
    bench_case.roof_gflop_per_s = 100;
    return bench_case;
  }

  test::ScriptedClock clock_;
  std::unique_ptr<Measurer> measurer_ = measure::make_measurer(clock_);
  int runs_ = 0;
  const kernels::MemoryProbe memory_{takes("memory", 0.5), 8e9};  // 16 GB/s
};

TEST_F(BenchRunTest, row_holds_time_rate_and_share_of_the_roof) {
  BenchRun run(*measurer_, {});
  run.add(make_case());
  const Json row = run.report()["rows"][0];
  EXPECT_EQ(row["case"], "4x4");
  EXPECT_EQ(row["impl"], "q8");
  EXPECT_DOUBLE_EQ(row["median_ms"].get<double>(), 1);
  EXPECT_DOUBLE_EQ(row["p10_ms"].get<double>(), 1);
  EXPECT_DOUBLE_EQ(row["p90_ms"].get<double>(), 1);
  EXPECT_EQ(row["n"], 10);
  EXPECT_DOUBLE_EQ(row["gb_per_s"].get<double>(), 8);
  EXPECT_DOUBLE_EQ(row["gflop_per_s"].get<double>(), 4);
  EXPECT_DOUBLE_EQ(row["share_of_roof"].get<double>(), 0.5);  // of memory, the larger one
  EXPECT_DOUBLE_EQ(row["share_ci"][0].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(row["roof_gb_per_s"].get<double>(), 16);
}

// A preparation must not lie between a run and the probe of its limit, nor a stream by our threads
// between a peer's preparation and run.
TEST_F(BenchRunTest, memory_is_probed_around_our_runs_after_their_preparation) {
  std::vector<std::string> order;
  const auto logs = [&](const std::string& name, double seconds, bool prepares) {
    Contestant contestant = takes(name.c_str(), seconds);
    contestant.run = [&order, name, run = contestant.run] { order.push_back(name), run(); };
    if (prepares) contestant.prepare = [&order, name] { order.push_back("prepare " + name); };
    return contestant;
  };
  const kernels::MemoryProbe memory{logs("memory", 1e-3, false), 16e6};  // 16 GB/s
  BenchCase bench_case;
  bench_case.name = "decode";
  bench_case.ours = {true, false};
  bench_case.bytes = 8e3;
  // Short enough to be repeated in a sample if they were not prepared.
  bench_case.contestants = {logs("hone", 1e-6, true), logs("peer", 1e-6, true)};
  bench_case.memory = &memory;
  bench_case.probe_around = true;
  BenchRun run(*measurer_, {.repeat = 3});
  run.add(bench_case);
  const std::vector<std::string> round{"prepare hone", "memory",       "hone",
                                       "memory",       "prepare peer", "peer"};
  ASSERT_EQ(order.size(), 5 * round.size());  // warmed up twice
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], round[i % round.size()]) << i;
  const Json rows = run.report()["rows"];
  EXPECT_NEAR(rows[0]["share_of_roof"].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(rows[1]["impl"], "peer");
  EXPECT_DOUBLE_EQ(rows[1]["gb_per_s"].get<double>(), 8);
  EXPECT_FALSE(rows[1].contains("share_of_roof"));
}

TEST_F(BenchRunTest, the_reason_for_no_share_of_memory_is_stated_instead) {
  BenchRun run(*measurer_, {});
  BenchCase bench_case = make_case();
  bench_case.no_memory_share = "no share of memory bandwidth: too small";
  EXPECT_THROW(run.add(bench_case), Error) << "a share and a reason for none";
  bench_case.memory = nullptr;
  bench_case.flops = 0;
  run.add(bench_case);
  const Json row = run.report()["rows"][0];
  EXPECT_EQ(row["no_memory_share"], "no share of memory bandwidth: too small");
  EXPECT_FALSE(row.contains("share_of_roof"));
  EXPECT_NE(run.table().find("no share of memory bandwidth: too small"), std::string::npos);
  EXPECT_EQ(run.table().find("of roof"), std::string::npos);
}

TEST_F(BenchRunTest, each_of_ours_is_compared_with_each_of_theirs) {
  BenchRun run(*measurer_, {});
  run.add(make_case());
  const Json ratios = run.report()["ratios"];
  ASSERT_EQ(ratios.size(), 2u);
  EXPECT_EQ(ratios[0]["impl"], "q8");
  EXPECT_EQ(ratios[0]["against"], "torch");
  EXPECT_DOUBLE_EQ(ratios[0]["ratio"].get<double>(), 2);
  EXPECT_EQ(ratios[0]["verdict"], "faster");
  EXPECT_EQ(ratios[1]["impl"], "q4");
  EXPECT_DOUBLE_EQ(ratios[1]["ratio"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(ratios[1]["ci"][0].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(ratios[1]["ci"][1].get<double>(), 0.5);
  EXPECT_EQ(ratios[1]["verdict"], "slower");
}

TEST_F(BenchRunTest, equal_times_are_a_tie) {
  BenchRun run(*measurer_, {});
  BenchCase bench_case = make_case();
  bench_case.contestants[0] = takes("q8", 0.002);
  run.add(bench_case);
  EXPECT_EQ(run.report()["ratios"][0]["verdict"], "tie");
}

TEST_F(BenchRunTest, absent_peers_have_a_row) {
  BenchRun run(*measurer_, {});
  BenchCase bench_case = make_case();
  bench_case.absent = {"llama_cpp"};
  run.add(bench_case);
  const Json row = run.report()["rows"][3];
  EXPECT_EQ(row["impl"], "llama_cpp");
  EXPECT_EQ(row["status"], "absent");
  EXPECT_NE(run.table().find("absent"), std::string::npos);
}

TEST_F(BenchRunTest, skipped_contestants_have_a_row_with_the_reason) {
  BenchRun run(*measurer_, {});
  BenchCase bench_case = make_case();
  bench_case.skipped = {{"loops", "too slow"}};
  run.add(bench_case);
  const Json row = run.report()["rows"][3];
  EXPECT_EQ(row["impl"], "loops");
  EXPECT_EQ(row["status"], "skipped: too slow");
  EXPECT_NE(run.table().find("skipped: too slow"), std::string::npos);
}

// q4 takes 4 ms, q8 1 ms.
TEST_F(BenchRunTest, quotients_are_times_over_times_and_are_held_to_their_bars) {
  BenchRun run(*measurer_, {});
  BenchCase bench_case = make_case();
  bench_case.quotients = {
      {"q4 / q8", 1, 0}, {"share", 0, 1, 0.3}, {"at the bar", 0, 1, 0.25}, {"more", 0, 1, 0.2}};
  run.add(bench_case);
  const Json all = run.report()["quotients"];
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0]["case"], "4x4");
  EXPECT_EQ(all[0]["name"], "q4 / q8");
  EXPECT_DOUBLE_EQ(all[0]["quotient"].get<double>(), 4);
  EXPECT_DOUBLE_EQ(all[0]["ci"][0].get<double>(), 4);
  EXPECT_DOUBLE_EQ(all[0]["ci"][1].get<double>(), 4);
  EXPECT_FALSE(all[0].contains("most"));
  EXPECT_FALSE(all[0].contains("verdict"));
  EXPECT_DOUBLE_EQ(all[1]["quotient"].get<double>(), 0.25);
  EXPECT_DOUBLE_EQ(all[1]["most"].get<double>(), 0.3);
  EXPECT_EQ(all[1]["verdict"], "within");
  EXPECT_EQ(all[2]["verdict"], "within");
  EXPECT_EQ(all[3]["verdict"], "above");
  const std::string table = run.table();
  EXPECT_NE(table.find("share: 0.25000 of at most 0.3 [0.25000, 0.25000] within"),
            std::string::npos)
      << table;
  bench_case.quotients = {{"nobody", 0, 3}};
  EXPECT_THROW(run.add(bench_case), Error);
}

TEST_F(BenchRunTest, rivalries_compare_with_the_fastest_of_a_list) {
  BenchRun run(*measurer_, {});
  BenchCase bench_case = make_case();
  bench_case.contestants.push_back(takes("slow", 0.008));
  bench_case.ours.push_back(false);
  bench_case.rivalries = {{0, {3, 2}}, {0, {3}}, {1, {2}}};
  run.add(bench_case);
  const Json report = run.report();
  ASSERT_EQ(report["ratios"].size(), 3u);
  EXPECT_EQ(report["ratios"][0]["against"], "torch");
  EXPECT_DOUBLE_EQ(report["ratios"][0]["ratio"].get<double>(), 2);
  EXPECT_DOUBLE_EQ(report["ratios"][1]["ratio"].get<double>(), 8);
  EXPECT_DOUBLE_EQ(report["rows"][0]["ratio"]["ratio"].get<double>(), 2) << "the first one";
  EXPECT_EQ(report["rows"][0]["ratio"]["verdict"], "faster");
  EXPECT_DOUBLE_EQ(report["rows"][1]["ratio"]["ratio"].get<double>(), 0.5);
  EXPECT_FALSE(report["rows"][2].contains("ratio"));
}

TEST_F(BenchRunTest, geometric_means_are_those_of_the_ratios) {
  BenchCase bench_case = make_case();
  bench_case.geometric_means = {{"ours / torch", {{0, 2}, {1, 2}}, 0.95}};
  BenchRun run(*measurer_, {}), few(*measurer_, {.repeat = 2});
  run.add(bench_case);
  few.add(bench_case);
  const Json mean = run.report()["geometric_means"][0];  // of 2 and 0.5
  EXPECT_EQ(mean["name"], "ours / torch");
  EXPECT_EQ(mean["points"], 2);
  EXPECT_NEAR(mean["ratio"].get<double>(), 1, 1e-12);
  EXPECT_NEAR(mean["ci"][0].get<double>(), 1, 1e-12);
  EXPECT_EQ(mean["wholly_below"], 1);
  EXPECT_THAT(run.table(), testing::HasSubstr("geometric mean of 2 ratios 1.000x"));
  EXPECT_THAT(run.table(), testing::HasSubstr("1 with an interval wholly below 0.95"));
  const Json without = few.report()["geometric_means"][0];
  EXPECT_FALSE(without.contains("ci") || without.contains("wholly_below"));
}

TEST_F(BenchRunTest, notes_and_untimed_rows_are_in_the_table) {
  BenchCase bench_case = make_case();
  bench_case.notes = {"eight bits", "", ""};
  BenchRun run(*measurer_, {});
  run.add(bench_case);
  run.add_untimed({{"case", "4x4"}, {"impl", "q2"}, {"bytes", 4}}, "four bytes");
  EXPECT_EQ(run.report()["rows"][3]["bytes"], 4);
  EXPECT_THAT(run.table(), testing::HasSubstr("  eight bits\n"));
  EXPECT_THAT(run.table(), testing::ContainsRegex("4x4 +q2 +four bytes\n"));
  bench_case.notes.pop_back();
  EXPECT_THROW(run.add(bench_case), Error);
}

TEST_F(BenchRunTest, few_rounds_give_a_quotient_without_a_verdict) {
  BenchRun run(*measurer_, {.repeat = 4});
  BenchCase bench_case = make_case();
  bench_case.quotients = {{"share", 0, 1, 0.3}};
  run.add(bench_case);
  const Json row = run.report()["quotients"][0];
  EXPECT_DOUBLE_EQ(row["quotient"].get<double>(), 0.25);
  EXPECT_TRUE(row.contains("no_interval"));
  EXPECT_FALSE(row.contains("ci") || row.contains("verdict"));
}

TEST_F(BenchRunTest, extra_fields_are_added_to_their_row) {
  BenchRun run(*measurer_, {});
  BenchCase bench_case = make_case();
  bench_case.extra = {{{"threads", 2}}, Json::object(), {{"dtype", "f32"}}};
  run.add(bench_case);
  const Json rows = run.report()["rows"];
  EXPECT_EQ(rows[0]["threads"], 2);
  EXPECT_EQ(rows[2]["dtype"], "f32");
  EXPECT_FALSE(rows[1].contains("threads"));
  bench_case.extra.pop_back();
  EXPECT_THROW(run.add(bench_case), Error);
}

TEST_F(BenchRunTest, repeat_fixes_the_number_of_rounds_and_quick_lowers_it) {
  BenchRun fixed(*measurer_, {.repeat = 17});
  fixed.add(make_case());
  EXPECT_EQ(fixed.report()["rows"][0]["n"], 17);
  BenchRun quick(*measurer_, {.quick = true});
  quick.add(make_case());
  EXPECT_EQ(quick.report()["rows"][0]["n"], 5);
  EXPECT_THROW(BenchRun(*measurer_, {.repeat = -1}), Error);
}

TEST_F(BenchRunTest, few_rounds_give_a_ratio_without_an_interval_and_a_verdict) {
  for (const Index rounds : {1, 4, 5}) {
    BenchRun run(*measurer_, {.repeat = rounds});
    run.add(make_case());
    const bool enough = rounds == 5;
    const Json report = run.report(), ratio = report["ratios"][0], row = report["rows"][0];
    EXPECT_DOUBLE_EQ(ratio["ratio"].get<double>(), 2);
    EXPECT_EQ(ratio.contains("ci"), enough) << rounds;
    EXPECT_EQ(ratio.contains("verdict"), enough) << rounds;
    EXPECT_EQ(ratio.contains("no_interval"), !enough) << rounds;
    EXPECT_EQ(row.contains("share_ci"), enough) << rounds;
    EXPECT_DOUBLE_EQ(row["share_of_roof"].get<double>(), 0.5);
    const std::string table = run.table();
    EXPECT_NE(table.find("2.000x"), std::string::npos);
    EXPECT_EQ(table.find("faster") != std::string::npos, enough) << table;
    EXPECT_EQ(table.find("fewer than 5 rounds") != std::string::npos, !enough) << table;
  }
}

TEST_F(BenchRunTest, table_names_every_contestant_and_ratio) {
  BenchRun run(*measurer_, {});
  run.add(make_case());
  const std::string table = run.table();
  for (const char* part : {"q8", "q4", "torch", "8.00 GB/s", "50 % of roof", "2.000x", "slower"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << " is missing in\n" << table;
  }
}

TEST_F(BenchRunTest, exponents_are_those_of_planted_growth) {
  const std::vector<double> sizes{512, 2048, 8192, 10000};
  for (const double exponent : {0.0, 1.0, 2.0}) {
    std::vector<double> values;
    for (const double size : sizes) values.push_back(3e-6 * std::pow(size, exponent));
    EXPECT_NEAR(growth_exponent(sizes, values), exponent, 1e-12);
  }
  // Least squares: slopes 0 and 2 on equal distances make 1.
  EXPECT_NEAR(growth_exponent(std::vector<double>{1, 10, 100}, std::vector<double>{5, 5, 500}), 1,
              1e-12);
  BenchRun run(*measurer_, {});
  run.add_growth({"core", "hone", "time", {2, 4}, {8, 32}});
  const Json row = run.report()["exponents"][0];
  EXPECT_EQ(row["name"], "core");
  EXPECT_EQ(row["impl"], "hone");
  EXPECT_EQ(row["of"], "time");
  EXPECT_NEAR(row["exponent"].get<double>(), 2, 1e-12);
  EXPECT_EQ(row["sizes"], (Json{2.0, 4.0}));
  EXPECT_NE(run.table().find("hone: time grows with exponent 2.000 over [2.0,4.0]"),
            std::string::npos)
      << run.table();
}

TEST_F(BenchRunTest, exponents_of_nothing_are_refused) {
  const auto of = [](std::vector<double> sizes, std::vector<double> values) {
    return test::error_of([&] { growth_exponent(sizes, values); });
  };
  EXPECT_NE(of({1, 2}, {1}), "no error");
  EXPECT_NE(of({1, 2}, {1, 0}), "no error");
  EXPECT_NE(of({1, 2}, {1, std::nan("")}), "no error");
  EXPECT_NE(of({-1, 2}, {1, 1}), "no error");
  for (const auto& sizes : {std::vector<double>{}, {3}, {3, 3}}) {
    EXPECT_EQ(of(sizes, sizes), "[bench] An exponent needs two different sizes.");
  }
}

TEST_F(BenchRunTest, table_shows_errors_beside_times) {
  BenchRun run(*measurer_, {});
  BenchCase bench_case = make_case();
  for (std::size_t i = 0; i < bench_case.contestants.size(); ++i) {
    bench_case.extra.push_back({{"rel_error", 0.0125}, {"provider", "LAPACK"}});
  }
  run.add(bench_case);
  EXPECT_NE(run.table().find("rel_error 0.0125  provider LAPACK\n"), std::string::npos)
      << run.table();
}

TEST(Roofs, are_positive_and_reading_is_not_slower_than_a_disk) {
  ThreadPool pool;
  const auto measurer = measure::make_measurer();
  const kernels::MemoryRoofs roofs = kernels::measure_memory_roofs(pool, *measurer, true);
  EXPECT_GT(roofs.read_gb_per_s, 0.5);
  EXPECT_GT(roofs.copy_gb_per_s, 0.5);
  EXPECT_GT(kernels::measure_peak_gflops(pool, *measurer, true), 0.5);
}

}  // namespace
}  // namespace hone::bench
