// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_dynamic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/core/machine/clock.h"
#include "hone/measure/measure.h"
#include "tests/bench/torch/bench_rows.h"
#include "tests/support/error_of.h"

namespace hone::bench {
namespace {

using testing::HasSubstr;

TEST(BenchDynamic, every_way_computes_the_layer) {
  const auto measurer = measure::make_measurer();
  BenchRun run(*measurer, {.quick = true, .repeat = 1});
  bench_dynamic({.rows = {3}, .width = 64, .steps = 4, .threads = 1}, run);
  const Json report = run.report();
  for (const char* name : {"linear/64x64/rows3", "lstm/64/rows3/steps4"}) {
    for (const char* impl : {"hone", "torch_dynamic", "f32"}) {
      const double error = test::row_of(report, name, impl).at("rel_error").get<double>();
      EXPECT_LT(error, 0.05) << name << " " << impl;
      EXPECT_EQ(error == 0, std::string(impl) == "f32") << name << " " << impl;
    }
  }
}

TEST(BenchDynamic, refuses_names_and_sizes_before_it_measures) {
  const auto measurer = measure::make_measurer();
  const auto refusal = [&](const BenchDynamicOptions& options) {
    BenchRun run(*measurer, {.quick = true, .repeat = 1});
    return test::error_of([&] { bench_dynamic(options, run); });
  };
  EXPECT_THAT(refusal({.ops = {"gru"}}), HasSubstr("linear or lstm"));
  EXPECT_THAT(refusal({.rows = {0}}), HasSubstr("rows"));
  EXPECT_THAT(refusal({.width = 3}), HasSubstr("width"));
  EXPECT_THAT(refusal({.steps = 0}), HasSubstr("steps"));
}

}  // namespace
}  // namespace hone::bench
