// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_optim.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>

#include "hone/core/error.h"
#include "hone/core/machine/clock.h"
#include "hone/kernels/cuda/device_info.h"
#include "hone/measure/measure.h"
#include "tests/support/error_of.h"

namespace hone::bench {
namespace {

// The rows of a run over the guide's five sizes, every sample of every contestant in them.
class GuideBench : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto measurer = measure::make_measurer();
    BenchRun run(*measurer, {.quick = true, .repeat = 7});
    bench_optim({.sizes = {"guide"}, .threads = 1}, run);
    report_ = run.report();
  }
  static const Json* find(const char* list, const std::string& name, const std::string& impl,
                          const std::string& against = "") {
    for (const Json& entry : report_.at(list)) {
      if (entry.at("case") == name && entry.at("impl") == impl &&
          (against.empty() || entry.at("against") == against)) {
        return &entry;
      }
    }
    return nullptr;
  }
  static Json report_;
};
Json GuideBench::report_;

constexpr const char* kSizes[] = {"100", "1000", "64x64", "512x512", "1024x1024"};

// A wrong name costs no minutes of measurement before it.
TEST(BenchOptim, refuses_a_wrong_list_before_it_measures) {
  const auto measurer = measure::make_measurer();
  for (const BenchOptimOptions& wrong :
       {BenchOptimOptions{.sizes = {"1x16"}, .rules = {"sgdm", "nadam"}},
        BenchOptimOptions{.sizes = {"1x16", "1x0"}, .rules = {"sgdm"}},
        BenchOptimOptions{.sizes = {"1x16"}, .rules = {"sgdm"}, .against = {"own", "them"}},
        BenchOptimOptions{.sizes = {"1x16"}, .rules = {"adamw"}, .ours = {"torchao_8bit"}},
        BenchOptimOptions{.sizes = {"1x16"},
        .rules = {"adamw"},
        .against = {"torchao_8bit"},
        .fresh_gradients = true},
        BenchOptimOptions{.sizes = {"1x16"}, .rules = {"sgdm"}, .device = "gpu"},
        BenchOptimOptions{.sizes = {"1x16"}, .rules = {"sgdm"}, .device = "cuda:63"},
        BenchOptimOptions{.sizes = {"1x16"}, .rules = {"sgdm"}, .device = "cuda:x"}}) {
    BenchRun run(*measurer, {.quick = true, .repeat = 7});
    EXPECT_THROW(bench_optim(wrong, run), Error);
    EXPECT_TRUE(run.report().at("rows").empty());
  }
}

// On every machine, before a device is looked for.
TEST(BenchOptim, refuses_what_does_not_run_on_a_cuda_device) {
  const auto measurer = measure::make_measurer();
  const auto refusal = [&](const BenchOptimOptions& options, ErrorCategory category) {
    BenchRun run(*measurer, {.quick = true, .repeat = 7});
    return test::refusal([&] { bench_optim(options, run); }, category);
  };
  constexpr auto kInvalid = ErrorCategory::InvalidArgument;
  using testing::HasSubstr;
  EXPECT_THAT(refusal({.sizes = {"1x16"}, .rules = {"sgdm_8bit"}, .device = "cuda"}, kInvalid),
              HasSubstr("expected state in fp32 with a CUDA device, got sgdm_8bit"));
  EXPECT_THAT(refusal({.sizes = {"guide"}, .device = "cuda"}, kInvalid),
              HasSubstr("expected sizes as tensors x elements with a CUDA device, got guide"));
  EXPECT_THAT(
      refusal(
          {.sizes = {"1x16"}, .rules = {"adamw"}, .against = {"torch_compile"}, .device = "cuda"},
          kInvalid),
      HasSubstr("expected LibTorch's ways alone with a CUDA device, got torch_compile"));
  EXPECT_THAT(refusal({.sizes = {"1x16"}, .rules = {"sgdm"}, .device = "cuda:63"},
                      ErrorCategory::Unsupported),
              HasSubstr("[--device] expected a CUDA device"));
}

TEST(BenchOptim, a_cuda_device_has_rows_of_hone_and_of_libtorch) {
  if (!at::hasCUDA() || kernels::query_cuda().devices.empty()) GTEST_SKIP() << "no CUDA device";
  const auto measurer = measure::make_measurer();
  BenchRun run(*measurer, {.quick = true, .repeat = 7});
  bench_optim({.sizes = {"30x1000", "2x33554432"},
               .rules = {"sgdm", "adam", "adamw", "adagrad", "rmsprop", "lion", "tam", "tam_row",
                         "adatamw", "amp_adamw"},
               .device = "cuda"},
              run);
  std::set<std::string> seen;
  const Json report = run.report();
  for (const Json& row : report.at("rows")) {
    EXPECT_GT(row.at("median_ms"), 0) << row.dump();
    EXPECT_THAT(row.at("device").get<std::string>(), testing::StartsWith("cuda:0, "));
    EXPECT_FALSE(row.contains("peak_extra_bytes")) << "not counted there";
    EXPECT_EQ(row.contains("share_of_roof"), row.at("case").get<std::string>().starts_with("2x"));
    if (row.at("impl") == "hone") {
      EXPECT_LT(row.value("share_of_roof", 0.0), 1.1) << row.dump();
    }
    seen.insert(row.at("impl"));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"hone", "torch_optim", "aten_fused", "aten_chain",
                                         "elementwise", "hone_sgdm", "hone_adamw"}));
}

TEST_F(GuideBench, every_size_has_a_row_for_normalize_and_multiply_with_median_and_spread) {
  for (const std::string size : kSizes) {
    for (const char* impl : {"manual", "cosine_similarity", "vectorized", "auto", "aten_chain",
                             "aten_normalize_multiply"}) {
      const Json* row = find("rows", "guide/" + size + "/cosine", impl);
      ASSERT_NE(row, nullptr) << size << ' ' << impl;
      EXPECT_EQ(row->at("n"), 7) << "single samples, no mean of a loop";
      const double median = row->at("median_ms");
      EXPECT_GT(median, 0);
      EXPECT_LE(row->at("p10_ms").get<double>(), median);
      EXPECT_GE(row->at("p90_ms").get<double>(), median);
    }
    const Json* row = find("rows", "guide/" + size + "/cosine", "aten_normalize_multiply");
    EXPECT_EQ(row->at("implementation"), "2 norms, 2 divisions, product, sum");
    for (const char* impl : {"manual", "cosine_similarity", "vectorized", "auto"}) {
      EXPECT_NE(find("rows", "guide/" + size + "/tam_step", impl), nullptr) << size << ' ' << impl;
    }
  }
}

TEST_F(GuideBench, manual_is_compared_with_both_of_atens_ways_by_an_interval) {
  for (const std::string size : kSizes) {
    for (const char* against : {"aten_chain", "aten_normalize_multiply"}) {
      const Json* ratio = find("ratios", "guide/" + size + "/cosine", "manual", against);
      ASSERT_NE(ratio, nullptr) << size << ' ' << against;
      const double low = ratio->at("ci")[0], high = ratio->at("ci")[1];
      EXPECT_LE(low, ratio->at("ratio").get<double>());
      EXPECT_GE(high, ratio->at("ratio").get<double>());
      EXPECT_TRUE(std::isfinite(low) && std::isfinite(high) && low > 0);
    }
  }
}

TEST_F(GuideBench, every_size_compares_a_step_in_place_with_a_checked_one_in_time_and_memory) {
  for (const std::string size : kSizes) {
    const std::string name = "guide/" + size + "/tam_in_place";
    const auto extra_bytes = [&](const char* impl) {
      const Json* row = find("rows", name, impl);
      return row != nullptr ? row->at("peak_extra_bytes").get<double>() : std::nan("");
    };
    EXPECT_LT(extra_bytes("in_place"), extra_bytes("checked")) << size;
    EXPECT_NE(find("ratios", name, "in_place", "checked"), nullptr) << size;
  }
}

TEST(BenchOptim, peers_step_adamw_alone_and_have_a_row_where_they_are_absent) {
  ::setenv("HONE_PEERS", "/nonexistent", 1);
  const auto measurer = measure::make_measurer();
  BenchRun run(*measurer, {.quick = true, .repeat = 3});
  bench_optim({.sizes = {"1x5000"}, .rules = {"sgdm", "adamw"}, .against = {"deepspeed"}}, run);
  ::unsetenv("HONE_PEERS");
  const Json rows = run.report().at("rows");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].at("case"), "1x5000/sgdm");
  EXPECT_NEAR(rows[1].at("state_bytes_per_param").get<double>(), 8, 0.5);
  EXPECT_EQ(rows[2], (Json{{"case", "1x5000/adamw"}, {"impl", "deepspeed"}, {"status", "absent"}}));
}

}  // namespace
}  // namespace hone::bench
