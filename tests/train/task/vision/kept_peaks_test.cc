// SPDX-License-Identifier: Apache-2.0
// paco.refresh_every in a run.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/train/task/vision/vision_setup.h"
#include "hone/train/trainer/probe_step.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::task {
namespace {

using test::error_of;
using testing::HasSubstr;
using torch::Tensor;

constexpr Index kPeakImages = 60, kBatch = 20, kStepsOfEpoch = kPeakImages / kBatch;

class KeptPeaks : public testing::Test {
 protected:
  KeptPeaks() {
    set_log_level(LogLevel::Error);
    test::write_bar_folder(folder_.path(), 12, 4, kPeakImages, 12);
  }
  // Images as they are, but for the settings.
  VisionConfig with(const std::vector<std::string>& settings) const {
    VisionConfig config = part_contrast_config();
    config.data.path = folder_.path().string();
    config.trainer.micro_batch = kBatch;
    config.model.width = 8;
    config.augment = {};
    config.loss.on_collapse = "off";
    for (const std::string& setting : settings) set_config(config, setting);
    check_config(config);
    return config;
  }
  VisionSetup set_up(const std::vector<std::string>& settings) const {
    return set_up_vision(with(settings));
  }

  test::TemporaryFolder folder_;
};

// The losses of steps first, …, end - 1; weights stay as they are.
std::vector<double> losses_of(const VisionSetup& setup, Index first, Index end) {
  const torch::NoGradGuard no_grad;
  std::vector<double> out;
  for (Index step = first; step < end; ++step) {
    out.push_back(setup.task->micro_batch(step, 0).sum.item<double>());
  }
  return out;
}

std::map<std::string, Tensor> peaks_of(const VisionSetup& setup) {
  std::map<std::string, Tensor> out;
  for (const trainer::CheckpointTensor& weight : setup.task->weights()) {
    if (weight.name.starts_with("peaks.")) out.emplace(weight.name, weight.value.clone());
  }
  return out;
}

bool are_equal(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  return std::ranges::equal(a, b, [](const auto& one, const auto& two) {
    return one.first == two.first && one.second.equal(two.second);
  });
}

Json cache_report(const VisionSetup& setup) {
  return setup.task->objective().report().at("peak_cache");
}

TEST_F(KeptPeaks, are_searched_on_one_of_so_many_visits) {
  for (const Index every : {2, 3}) {
    const VisionSetup setup = set_up({concat("paco.refresh_every=", every)});
    losses_of(setup, 0, 2 * every * kStepsOfEpoch);
    EXPECT_EQ(cache_report(setup), (Json{{"refresh_every", every},
                                         {"detections", 2 * kPeakImages},
                                         {"reused", 2 * kPeakImages * (every - 1)}}));
  }
}

TEST_F(KeptPeaks, are_searched_where_a_view_does_not_show_them) {
  const VisionSetup setup = set_up({"paco.refresh_every=2", "augment.flip=0.5", "augment.occlude=1",
                                    "augment.crop=random", "augment.crop_padding=2"});
  losses_of(setup, 0, 2 * kStepsOfEpoch);
  const Json report = cache_report(setup);
  EXPECT_GT(report.at("detections"), kPeakImages);
  EXPECT_GT(report.at("reused"), 0);
  EXPECT_EQ(report.at("detections").get<Index>() + report.at("reused").get<Index>(),
            2 * kPeakImages);
}

TEST_F(KeptPeaks, change_nothing_where_every_visit_searches) {
  const VisionSetup plain = set_up({}), every = set_up({"paco.refresh_every=1"});
  EXPECT_EQ(losses_of(plain, 0, 4), losses_of(every, 0, 4));
  EXPECT_TRUE(peaks_of(every).empty());
  EXPECT_TRUE(cache_report(every).is_null());
}

TEST_F(KeptPeaks, go_on_alike_from_a_copied_state) {
  // Larger windows would cover the map, and all parts be the same.
  const std::vector<std::string> settings{"paco.refresh_every=3", "augment.flip=0.5",
                                          "paco.window=1"};
  const VisionSetup first = set_up(settings);
  losses_of(first, 0, 4);
  const auto go_on = [&](bool with_peaks) {
    const VisionSetup next = set_up(settings);
    const auto from = first.task->weights(), to = next.task->weights();
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(from[i].name, to[i].name);
      if (with_peaks || !from[i].name.starts_with("peaks.")) to[i].value.copy_(from[i].value);
    }
    const auto losses = losses_of(next, 4, 9);
    return std::pair(losses, peaks_of(next));
  };
  const auto [losses, peaks] = go_on(true);
  const auto [other_losses, other_peaks] = go_on(false);
  EXPECT_EQ(losses_of(first, 4, 9), losses);
  EXPECT_TRUE(are_equal(peaks_of(first), peaks));
  EXPECT_EQ(peaks.size(), 3u);
  EXPECT_NE(losses, other_losses);
}

TEST_F(KeptPeaks, of_a_step_that_is_run_again_or_skipped_count_once) {
  const VisionSetup setup = set_up({"paco.refresh_every=3"});
  losses_of(setup, 0, 4);
  const auto once = peaks_of(setup);
  losses_of(setup, 3, 4);
  EXPECT_TRUE(are_equal(peaks_of(setup), once));
  losses_of(setup, 4, 5);
  EXPECT_FALSE(are_equal(peaks_of(setup), once));
  setup.task->restore_buffers();
  EXPECT_TRUE(are_equal(peaks_of(setup), once));
}

TEST_F(KeptPeaks, are_not_those_of_a_memory_probe_and_no_part_of_the_model) {
  const VisionSetup setup = set_up({"paco.refresh_every=2"});
  losses_of(setup, 0, 1);
  const auto before = peaks_of(setup);
  setup.task->loss_of(trainer::replicate(setup.task->largest_sample(), 4));
  EXPECT_TRUE(are_equal(peaks_of(setup), before));
  for (const auto& item : setup.model->named_buffers()) {
    EXPECT_FALSE(item.key().starts_with("peaks")) << item.key();
  }
}

TEST_F(KeptPeaks, are_refused_by_name) {
  EXPECT_THAT(error_of([&] { with({"paco.refresh_every=0"}); }), HasSubstr("[paco.refresh_every]"));
  EXPECT_THAT(error_of([&] {
                with({"loss.method=ce", "paco.refresh_every=2"});
              }),
              HasSubstr("no effect with loss.method = ce"));
  EXPECT_THAT(error_of([&] {
                set_up({"paco.refresh_every=2", "trainer.device=cuda:1"});
              }),
              HasSubstr("[paco.refresh_every] expected 1 with trainer.device = cuda:1, got 2"));
  EXPECT_THAT(error_of([&] { set_up({"trainer.device=cuda:63"}); }), HasSubstr("[trainer.device]"));
}

}  // namespace
}  // namespace hone::task
