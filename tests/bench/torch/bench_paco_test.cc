// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/torch/bench_paco.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hone/bench/torch/paco_contestants.h"
#include "hone/core/machine/clock.h"
#include "hone/measure/measure.h"
#include "tests/bench/torch/bench_rows.h"
#include "tests/support/error_of.h"

namespace hone::bench {
namespace {

using test::error_of;
using test::row_of;
using test::worst;
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

// The quotient of this name is that of the medians of two rows of its case.
void expect_quotient(const Json& report, const std::string& name, const std::string& of,
                     const std::string& over) {
  for (const Json& quotient : report.at("quotients")) {
    if (quotient.at("name") != name) continue;
    const auto median = [&](const std::string& impl) {
      return row_of(report, quotient.at("case"), impl).at("median_ms").get<double>();
    };
    const double want = median(of) / median(over);
    EXPECT_NEAR(quotient.at("quotient").get<double>(), want, 1e-9 * want) << name;
    EXPECT_LE(quotient.at("ci").at(0).get<double>(), quotient.at("ci").at(1).get<double>());
    return;
  }
  ADD_FAILURE() << "no quotient " << name;
}

TEST(BenchPaco, has_a_row_for_every_batch_and_side_with_its_loss) {
  const auto measurer = measure::make_measurer();
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
    if (row.contains("status")) continue;
    EXPECT_EQ(row.at("n"), 5);
    EXPECT_EQ(row.contains("loss_difference"), row.contains("loss") && row.at("impl") != "hone");
    if (row.contains("loss_difference")) {
      EXPECT_LE(row.at("loss_difference").get<double>(), 1e-10 * row.at("loss").get<double>());
    }
  }
  EXPECT_THAT(names,
              testing::ElementsAre("b4/part_contrast hone", "b4/part_contrast dense",
                                   "b4/part_contrast operators", "b4/loops hone", "b4/loops loops",
                                   "b33/part_contrast hone", "b33/part_contrast dense",
                                   "b33/part_contrast operators", "b33/loops loops",
                                   "growth/part_contrast b4", "growth/part_contrast b33",
                                   "growth/losses b4", "growth/losses b33"));
  for (const char* batch : {"b4", "b33"}) {
    const Json& row = row_of(report, std::string(batch) + "/part_contrast", "hone");
    EXPECT_GT(row.at("active_share").get<double>(), 0.1) << "gradients that are all 0";
    EXPECT_GT(row.at("loss").get<double>(), 0);
  }
  EXPECT_EQ(row_of(report, "b33/loops", "loops").at("status"), "skipped: more than 32 images");
  EXPECT_EQ(report.at("ratios").size(), 3u + 2u);
  EXPECT_EQ(report.at("quotients").size(), 2u);
  expect_quotient(report, "b33 / b4", "b33", "b4");
}

TEST(BenchPaco, tells_what_mining_allocates_beside_the_dense_pool) {
  const auto measurer = measure::make_measurer();
  BenchRun run(*measurer, {.quick = true, .repeat = 1});
  bench_paco({.batches = {16, 128}, .parts = 4, .dim = 16, .against = {}, .threads = 1}, run);
  const Json report = run.report();
  for (const Index batch : {16, 128}) {
    const Json& row = row_of(report, "b" + std::to_string(batch) + "/part_contrast", "hone");
    const Index rows = 2 * batch * 4, all = row.at("mining_bytes");
    EXPECT_EQ(row.at("dense_pool_bytes"), batch * rows * 16 * 8);
    EXPECT_LT(row.at("mining_kernel_bytes"), all);
    // The tensors are the pool, owner and label of each row, and the choices; the kernel has the
    // former once more.
    EXPECT_GE(all, 2 * rows * (16 + 2) * 8);
    EXPECT_LT(all, row.at("dense_pool_bytes"));
  }
  EXPECT_NE(run.table().find("dense pool 16.777 MB"), std::string::npos) << run.table();
}

TEST(BenchPaco, a_whole_step_has_the_shares_of_what_part_contrast_adds) {
  const auto measurer = measure::make_measurer();
  BenchRun run(*measurer, {.quick = true, .repeat = 5});
  BenchPacoOptions options{.batches = {4}, .parts = 3, .dim = 8, .against = {}, .threads = 1};
  options.networks = {{.name = "resnet20", .side = 16, .most = 1e9, .width = 4},
                      {.name = "resnet20", .side = 20, .most = 1e-9, .width = 2}};
  BenchRun without(*measurer, {.quick = true, .repeat = 5});
  bench_paco(options, without);
  EXPECT_EQ(without.report().at("rows").size(), 3u) << "only by --whole-step";
  options.whole_step = true;
  bench_paco(options, run);
  const Json report = run.report();
  for (const std::string step : {"step of resnet20 at 16", "step of resnet20 at 20"}) {
    for (const std::string part : {"whole loss", "sampling", "losses"}) {
      expect_quotient(report, part + " / " + step, part, "step");
    }
  }
  const Json& quotients = report.at("quotients");
  ASSERT_EQ(quotients.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(quotients[i].contains("most"), i % 3 == 0) << i;
  EXPECT_EQ(quotients[0].at("verdict"), "within");
  EXPECT_EQ(quotients[3].at("verdict"), "above");
}

TEST(BenchPaco, refuses_by_name) {
  const auto refused = [](const BenchPacoOptions& options) {
    const auto measurer = measure::make_measurer();
    BenchRun run(*measurer, {.quick = true, .repeat = 1});
    return error_of([&] { bench_paco(options, run); });
  };
  EXPECT_THAT(refused({.parts = 1}), HasSubstr("parts, got 1"));
  EXPECT_THAT(refused({.parts = 65}), HasSubstr("2 to 64 parts, got 65"));
  EXPECT_THAT(refused({.dim = 0}), HasSubstr("a dim of 1 to 1024, got 0"));
  EXPECT_THAT(refused({.batches = {1}}), HasSubstr("batches of 2 to 1024 images, got 1"));
  BenchPacoOptions options{.against = {}, .whole_step = true};
  options.networks = {{.name = "cnn", .side = 16}};
  EXPECT_THAT(refused(options), HasSubstr("a ResNet as backbone, got cnn"));
  EXPECT_THAT(refused({.against = {"hone"}}), HasSubstr("dense, operators or loops, got hone"));
  EXPECT_THAT(refused({.against = {"them"}}), HasSubstr("got them"));
}

}  // namespace
}  // namespace hone::bench
