// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_paco.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hone/bench/torch/paco_contestants.h"
#include "hone/core/clock.h"
#include "hone/tune/measure/measure.h"
#include "tests/support/error_of.h"

namespace hone::bench {
namespace {

using test::error_of;
using testing::HasSubstr;
using torch::Tensor;

struct Passed {
  Tensor loss, by_z1, by_z2;
};

Passed pass(const char* way, const PartContrastWork& from) {
  const PartContrastWork work{from.z1.clone().requires_grad_(), from.z2.clone().requires_grad_(),
                              from.targets};
  const Tensor loss = part_contrast_run(way)(work);
  loss.backward();
  return {loss.detach(), work.z1.grad(), work.z2.grad()};
}

double worst(const Tensor& got, const Tensor& want) {
  return ((got - want).abs().max() / want.abs().max()).item<double>();
}

TEST(PartContrastRun, of_every_way_is_the_same_loss_with_the_same_gradients) {
  at::manual_seed(1);
  for (const auto& [parts, dim] : {std::pair<Index, Index>{2, 5}, {4, 32}, {6, 16}}) {
    const Tensor z1 = at::randn({6, parts, dim}, at::kDouble);
    const PartContrastWork work{z1, at::randn_like(z1), at::arange(6, at::kLong).remainder(4)};
    const Passed ours = pass("hone", work);
    EXPECT_GT(ours.loss.item<double>(), 0);
    for (const char* way : {"dense", "operators", "loops"}) {
      const Passed theirs = pass(way, work);
      EXPECT_LE(worst(theirs.loss, ours.loss), 1e-10) << way;
      EXPECT_LE(worst(theirs.by_z1, ours.by_z1), 1e-8) << way;
      EXPECT_LE(worst(theirs.by_z2, ours.by_z2), 1e-8) << way;
    }
  }
}

TEST(BenchPaco, has_a_row_for_every_batch_and_side_with_its_loss) {
  const auto measurer = tune::make_measurer(steady_clock());
  BenchRun run(*measurer, {.quick = true, .repeat = 5});
  bench_paco({.batches = {4, 33},
              .parts = 3,
              .dim = 8,
              .against = {"dense", "operators", "loops"},
              .threads = 1},
             run);
  const Json report = run.report();
  std::vector<std::string> names;
  for (const Json& row : report.at("rows")) {
    names.push_back(row.at("case").get<std::string>() + " " + row.at("impl").get<std::string>());
    EXPECT_EQ(row.at("n"), 5);
    EXPECT_EQ(row.contains("loss_difference"), row.contains("loss") && row.at("impl") != "hone");
    if (row.contains("loss_difference")) {
      EXPECT_LE(row.at("loss_difference").get<double>(), 1e-10 * row.at("loss").get<double>());
    }
  }
  EXPECT_THAT(names, testing::ElementsAre("b4/part_contrast hone", "b4/part_contrast dense",
                                          "b4/part_contrast operators", "b4/part_contrast loops",
                                          "b4/whole_loss hone", "b33/part_contrast hone",
                                          "b33/part_contrast dense", "b33/part_contrast operators",
                                          "b33/whole_loss hone"))
      << "loops take at most 32 images";
  EXPECT_EQ(report.at("ratios").size(), 3u + 2u);
}

TEST(BenchPaco, refuses_by_name) {
  const auto refused = [](const BenchPacoOptions& options) {
    const auto measurer = tune::make_measurer(steady_clock());
    BenchRun run(*measurer, {.quick = true, .repeat = 1});
    return error_of([&] { bench_paco(options, run); });
  };
  EXPECT_THAT(refused({.parts = 1}), HasSubstr("parts, got 1"));
  EXPECT_THAT(refused({.parts = 65}), HasSubstr("2 to 64 parts, got 65"));
  EXPECT_THAT(refused({.dim = 0}), HasSubstr("a dim of 1 to 1024, got 0"));
  EXPECT_THAT(refused({.batches = {1}}), HasSubstr("batches of 2 to 1024 images, got 1"));
  EXPECT_THAT(refused({.against = {"hone"}}), HasSubstr("dense, operators or loops, got hone"));
  EXPECT_THAT(refused({.against = {"them"}}), HasSubstr("got them"));
}

}  // namespace
}  // namespace hone::bench
