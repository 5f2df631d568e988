// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_attention.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "hone/bench/torch/attention_contestants.h"
#include "hone/bench/torch/linalg_work.h"
#include "hone/core/machine/clock.h"
#include "hone/measure/measure.h"
#include "tests/support/error_of.h"
#include "tests/train/sketch/attention_oracle.h"

namespace hone::bench {
namespace {

using at::Tensor;
using test::error_of;
using testing::HasSubstr;

TEST(LoopedAttention, is_attention_over_all_pairs_of_tokens) {
  at::manual_seed(3);
  for (const double size : {0.1, 1.0}) {
    const Tensor q = nn::test::randn({2, 37, 3, 8}, size), k = nn::test::randn({2, 37, 3, 8}, size);
    const Tensor v = nn::test::randn({2, 37, 3, 5});
    // So many that no token has only features of 0, whose weights would be 0/0.
    const Tensor omega = nn::orthogonal_features(80, 8, nn::FeatureNorm::Chi, 5, 0);
    for (const nn::FeatureKind kind : {nn::FeatureKind::Softmax, nn::FeatureKind::Relu}) {
      const Tensor want = nn::test::all_pairs(q, k, v, omega, {kind, /*causal=*/true, 0});
      EXPECT_LE(nn::test::relative_error(looped_attention(q, k, v, omega, kind), want), 1e-10);
    }
  }
}

AttentionShape shape_of(bool causal, bool is_layer, nn::FeatureKind kind) {
  return {.tokens = 90,
          .heads = 3,
          .dim = 8,
          .features = 32,
          .kind = kind,
          .causal = causal,
          .is_layer = is_layer,
          .norm = 0.7};
}

TEST(AttentionContestant, of_sdpa_is_exact_and_hone_is_the_loop) {
  for (const bool causal : {false, true}) {
    for (const bool is_layer : {false, true}) {
      for (const nn::FeatureKind kind : {nn::FeatureKind::Softmax, nn::FeatureKind::Relu}) {
        const AttentionWork work = make_attention_work(shape_of(causal, is_layer, kind));
        const Tensor rows = checked_rows(work.shape);
        EXPECT_EQ(rows.numel(), 64);
        EXPECT_EQ(rows[-1].item<std::int64_t>(), 89);
        const at::NoGradGuard no_grad;
        const Tensor exact = AttentionContestant("sdpa", work).forward().squeeze(0);
        EXPECT_LE(relative_difference(exact.index_select(0, rows), exact_attention(work, rows)),
                  5e-6);
        if (!causal) continue;
        EXPECT_LE(relative_difference(AttentionContestant("loop", work).forward(),
                                      AttentionContestant("hone", work).forward()),
                  2e-5);
      }
    }
  }
}

// Many features come close to the weights that they estimate, which for relu are other ones than
// those of exact attention.
TEST(AttentionContestant, of_many_features_approaches_its_kernel) {
  for (const nn::FeatureKind kind : {nn::FeatureKind::Softmax, nn::FeatureKind::Relu}) {
    AttentionShape shape = shape_of(true, false, kind);
    const auto error = [&](Index features) {
      shape.features = features;
      const AttentionWork work = make_attention_work(shape);
      const Tensor rows = checked_rows(shape);
      const at::NoGradGuard no_grad;
      const Tensor out = AttentionContestant("hone", work).forward().squeeze(0);
      return relative_difference(out.index_select(0, rows), kernel_attention(work, rows));
    };
    const double few = error(16), many = error(4096);
    EXPECT_LT(many, 0.1);
    EXPECT_GT(few, 4 * many) << "an error falls as the root of the number of features";
  }
}

TEST(AttentionWork, has_the_norm_that_it_says) {
  for (const double norm : {0.25, 3.0}) {
    AttentionShape shape = shape_of(false, false, nn::FeatureKind::Softmax);
    shape.norm = norm;
    const AttentionWork work = make_attention_work(shape);
    const double size = at::cat({work.q, work.k}).square().sum(-1).mean().sqrt().item<double>();
    EXPECT_NEAR(size, norm, 0.05 * norm);
  }
}

Json measured_attention(const BenchAttentionOptions& options, std::string* table = nullptr) {
  const auto measurer = measure::make_measurer();
  BenchRun run(*measurer, {.quick = true, .repeat = 1});
  bench_attention(options, run);
  if (table != nullptr) *table = run.table();
  return run.report();
}

TEST(BenchAttention, has_errors_memory_and_their_growth) {
  std::string table;
  const Json report = measured_attention({.seqs = {128, 512, 2048},
                                          .heads = 2,
                                          .dim = 16,
                                          .features = {32},
                                          .kernels = {"softmax", "relu"},
                                          .passes = {"forward", "train"},
                                          .causal = true,
                                          .against = {"sdpa", "loop"},
                                          .threads = 1},
                                         &table);
  std::size_t loops = 0;
  for (const Json& row : report.at("rows")) {
    ASSERT_FALSE(row.contains("status")) << row;
    const std::string impl = row.at("impl");
    const double error = row.at("rel_error");
    if (impl == "sdpa") {
      EXPECT_LE(error, 2e-5) << row;
      EXPECT_FALSE(row.contains("kernel_error"));
    } else {
      EXPECT_GT(error, 1e-3) << row;
      EXPECT_LT(row.at("kernel_error").get<double>(), 0.9) << row;
      const bool is_softmax =
          row.at("case").get<std::string>().find("softmax") != std::string::npos;
      EXPECT_EQ(row.at("kernel_error") == row.at("rel_error"), is_softmax) << row;
    }
    const std::string name = row.at("case");
    const double tokens = std::stod(name.substr(name.rfind("/t") + 2));
    EXPECT_GE(row.at("peak_memory_mb").get<double>(), tokens * 2 * 16 * 4e-6) << "the output";
    EXPECT_EQ(row.contains("memory_over_sdpa"),
              impl == "hone" && name.find("/loop") == std::string::npos);
    loops += impl == "loop";
  }
  EXPECT_EQ(loops, 12u);
  const Json& exponents = report.at("exponents");
  ASSERT_EQ(exponents.size(), 4u * 4u);
  EXPECT_EQ(exponents[0].at("name"), "core/m32/softmax/causal/forward");
  for (const Json& row : exponents) {
    EXPECT_EQ(row.at("sizes"), (Json{128.0, 512.0, 2048.0}));
    // Flash attention and random features keep nothing of the size of all pairs.
    if (row.at("of") == "memory") {
      EXPECT_LT(row.at("exponent").get<double>(), 1.2) << row;
    }
  }
  EXPECT_THAT(table, HasSubstr("grows with exponent"));
  EXPECT_THAT(table, HasSubstr("rel_error"));
}

TEST(BenchAttention, skips_loops_that_would_not_end) {
  const auto status = [](Index tokens, Index features, const char* pass, bool causal) {
    const Json report = measured_attention({.seqs = {tokens},
                                            .heads = 4,
                                            .dim = 64,
                                            .features = {features},
                                            .passes = {pass},
                                            .causal = causal,
                                            .against = {"loop"},
                                            .threads = 1});
    EXPECT_EQ(report.at("exponents").size(), 0u) << "of one number of tokens";
    return report.at("rows").back().value("status", "");
  };
  EXPECT_EQ(status(2049, 16, "forward", true), "skipped: more than 2048 tokens");
  EXPECT_EQ(status(16, 16, "forward", false), "skipped: only causal attention has a loop");
  EXPECT_THAT(status(2048, 512, "train", true), HasSubstr("more than 1 GiB"));
  EXPECT_EQ(status(16, 16, "train", true), "");
}

TEST(BenchAttention, measures_whole_layers) {
  const Json report = measured_attention({.seqs = {64},
                                          .heads = 2,
                                          .dim = 8,
                                          .features = {64},
                                          .passes = {"train"},
                                          .layer = true,
                                          .norm = 0.3,
                                          .threads = 1});
  ASSERT_EQ(report.at("rows").size(), 2u);
  EXPECT_EQ(report.at("rows")[0].at("case"), "layer/m64/softmax/train/t64");
  EXPECT_LT(report.at("rows")[0].at("rel_error").get<double>(), 0.2);
  EXPECT_LT(report.at("rows")[1].at("rel_error").get<double>(), 2e-5);
}

TEST(BenchAttention, refuses_by_name_before_it_measures) {
  const auto refused = [](const BenchAttentionOptions& options) {
    return error_of([&] { measured_attention(options); });
  };
  EXPECT_THAT(refused({.seqs = {0}}), HasSubstr("1 to 131072 tokens, got 0"));
  EXPECT_THAT(refused({.seqs = {16, 131073}}), HasSubstr("got 131073"));
  EXPECT_THAT(refused({.heads = 0}), HasSubstr("heads, got 0"));
  EXPECT_THAT(refused({.dim = -1}), HasSubstr("got -1"));
  EXPECT_THAT(refused({.features = {0}}), HasSubstr("features, got 0"));
  EXPECT_THAT(refused({.kernels = {"cos"}}), HasSubstr("softmax or relu, got cos"));
  EXPECT_THAT(refused({.passes = {"backward"}}), HasSubstr("forward or train, got backward"));
  EXPECT_THAT(refused({.against = {"hone"}}), HasSubstr("sdpa or loop, got hone"));
  for (const double norm : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(refused({.norm = norm}), HasSubstr("a norm above 0, at most 1e6")) << norm;
  }
}

}  // namespace
}  // namespace hone::bench
