// SPDX-License-Identifier: Apache-2.0
// Every key that images alone have changes something that a run leaves behind.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "hone/app/torch/train_vision.h"
#include "hone/core/error.h"
#include "hone/core/file_io.h"
#include "hone/train/task/lm/lm_config.h"
#include "hone/train/trainer/metrics_log.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using Settings = std::vector<std::string>;

const Settings kBase{"model.name=mlp",           "model.width=8",
                     "data.validation_images=8", "lr.warm_up_steps=1",
                     "trainer.steps=4",          "trainer.micro_batch=8",
                     "trainer.validate_every=2", "trainer.checkpoint_every=4"};
const Settings kLeaves{"data.path=leaves", "data.leaves.classes=3", "data.leaves.size=32",
                       "data.leaves.train=8", "data.leaves.val=4"};

// Losses, rates, norms, the exported weights, or why the run failed.
std::string run(const Settings& base, const Settings& settings) {
  const test::TemporaryFolder folder;
  TrainVisionJob job{.config = {}, .out = folder.path() / "run", .threads = 1};
  for (const Settings* list : {&kBase, &base, &settings}) {
    for (const std::string& one : *list) set_config(job.config, one);
  }
  testing::internal::CaptureStderr();
  TrainVisionResult result;
  try {
    result = train_vision(job);
  } catch (const Error& error) {
    testing::internal::GetCapturedStderr();
    return error.what();
  }
  testing::internal::GetCapturedStderr();
  std::ostringstream text;
  text.precision(17);
  for (const trainer::MetricsRow& row : trainer::read_metrics(job.out / "metrics.csv")) {
    text << row.step << ' ' << row.loss << ' ' << row.grad_norm << ' ' << row.val_loss.value_or(-1)
         << '\n';
  }
  text << result.val_loss << ' ' << result.val_accuracy << ' ' << result.classes << '\n';
  return text.str() + read_text_file(result.model / "model.safetensors");
}

// A value that is not the one in force, and what else must be set for the key to be read.
struct Change {
  std::string value;
  Settings with = {};
};

std::map<std::string, Change> changes(const fs::path& init) {
  return {{"model.name", {"cnn"}},
          {"model.width", {"16"}},
          {"model.init", {init.string()}},
          {"data.validation_images", {"4"}},
          {"data.leaves.classes", {"4"}},
          {"data.leaves.size", {"40"}},
          {"data.leaves.train", {"9"}},
          {"data.leaves.val", {"5"}},
          {"data.leaves.difficulty", {"0.9"}},
          {"data.leaves.seed", {"2"}},
          {"augment.side", {"24"}},
          {"augment.crop", {"random", {"augment.side=24"}}},
          {"augment.crop_padding", {"4", {"augment.crop=random"}}},
          {"augment.flip", {"0.5"}},
          {"augment.ops", {"2"}},
          {"augment.magnitude", {"9", {"augment.ops=2"}}},
          {"augment.occlude", {"1"}},
          {"augment.occlude_area", {"0.02", {"augment.occlude=1"}}},
          {"augment.shuffle", {"1"}},
          {"augment.shuffle_cells", {"2", {"augment.shuffle=1"}}},
          {"augment.shuffle_grid", {"8", {"augment.shuffle=1"}}}};
}

// Results keep their bits, or all but the last ones, by design, as the tests of the task and of
// batches say; the last one, which leaves do not read, has a test below.
const std::set<std::string> kSeenElsewhere{"data.workers", "data.prefetch", "data.memory_mb",
                                           "model.channels_last", "data.image_size"};

std::set<std::string> keys_of_lm() {
  task::LmConfig config;
  std::set<std::string> names;
  for (const ConfigEntry& entry : config_entries(config)) names.emplace(entry.name);
  return names;
}

TEST(VisionConfigKeys, every_key_changes_what_a_run_leaves_behind) {
  const test::TemporaryFolder folder;
  TrainVisionJob first{.config = {}, .out = folder.path() / "first", .threads = 1};
  for (const Settings* list : {&kBase, &kLeaves}) {
    for (const std::string& one : *list) set_config(first.config, one);
  }
  set_config(first.config, "trainer.seed=9");
  testing::internal::CaptureStderr();
  const fs::path init = train_vision(first).model;
  testing::internal::GetCapturedStderr();
  const auto known = changes(init);
  std::map<Settings, std::string> without;
  without[{}] = run(kLeaves, {});
  ASSERT_TRUE(run(kLeaves, {}) == without[{}]) << "the same run twice leaves the same";
  const std::set<std::string> of_lm = keys_of_lm();
  task::VisionConfig config;
  for (const ConfigEntry& entry : config_entries(config)) {
    const std::string name(entry.name);
    if (of_lm.contains(name) || kSeenElsewhere.contains(name)) continue;
    ASSERT_TRUE(known.contains(name)) << "a new key needs an entry above: " << name;
    const Change& change = known.at(name);
    if (!without.contains(change.with)) without[change.with] = run(kLeaves, change.with);
    EXPECT_NE(without[change.with].find('\n'), std::string::npos) << "no run, but an error";
    Settings settings = change.with;
    settings.push_back(name + "=" + change.value);
    const std::string changed = run(kLeaves, settings);
    EXPECT_NE(changed.find('\n'), std::string::npos) << name << ": " << changed;
    EXPECT_FALSE(changed == without[change.with]) << name;
  }
}

TEST(VisionConfigKeys, image_size_scales_the_images_of_a_folder) {
  const test::TemporaryFolder folder;
  for (const std::string name : {"a", "b"}) {
    for (int i = 0; i < 12; ++i) {
      const auto seed = static_cast<std::uint64_t>(i + (name == "a" ? 0 : 100));
      test::write_bytes(folder.path() / name / (std::to_string(i) + ".ppm"),
                        test::ppm_file(24, 24, test::scene(24, 24, 3, seed)));
    }
  }
  const Settings base{"data.path=" + folder.path().string()};
  const std::string plain = run(base, {}), scaled = run(base, {"data.image_size=16"});
  EXPECT_NE(plain.find('\n'), std::string::npos) << plain;
  EXPECT_NE(scaled.find('\n'), std::string::npos) << scaled;
  EXPECT_FALSE(plain == scaled);
}

}  // namespace
}  // namespace hone::app
