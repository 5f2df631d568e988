// SPDX-License-Identifier: Apache-2.0
// Every key that training on images alone has changes something that a run leaves behind.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "hone/app/torch/train_vision.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/train/task/lm/lm_config.h"
#include "hone/train/trainer/metrics_log.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using Settings = std::vector<std::string>;

const Settings kVisionBase{"model.name=mlp",           "model.width=8",
                           "data.validation_images=8", "lr.warm_up_steps=1",
                           "trainer.steps=4",          "trainer.micro_batch=8",
                           "trainer.validate_every=2", "trainer.checkpoint_every=4"};
const Settings kLeaves{"data.path=leaves", "data.leaves.classes=3", "data.leaves.size=32",
                       "data.leaves.train=8", "data.leaves.val=4"};

// Losses and their terms, norms, the guard's verdict, the exported weights, or why the run failed.
std::string run(const Settings& base, const Settings& settings) {
  const test::TemporaryFolder folder;
  TrainVisionJob job{.config = {}, .out = folder.path() / "run", .threads = 1};
  for (const Settings* list : {&kVisionBase, &base, &settings}) {
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
    text << row.step << ' ' << row.loss << ' ' << row.grad_norm;
    for (const auto& value : {row.val_loss, row.ce, row.aux, row.pac, row.soc}) {
      text << ' ' << value.value_or(-1);
    }
    text << '\n';
  }
  text << result.val_loss << ' ' << result.val_accuracy << ' ' << result.classes << ' '
       << result.guard << '\n';
  return text.str() + read_text_file(result.model / "model.safetensors");
}

// A value that is not the one in force, and what else must be set for the key to be read.
struct VisionChange {
  std::string value;
  Settings with = {};
};

std::map<std::string, VisionChange> changes(const fs::path& init) {
  return {{"model.name", {"cnn"}},
          {"model.width", {"16"}},
          {"model.init", {init.string()}},
          {"lr.backbone_scale", {"0.5", {"model.init=" + init.string()}}},
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

std::map<std::string, VisionChange> loss_changes() {
  const Settings resnet{"model.name=resnet20"};
  const Settings supcon{"model.name=resnet20", "loss.method=supcon"};
  const Settings triplet{"model.name=resnet20", "loss.method=triplet"};
  return {{"loss.method", {"supcon", resnet}},   {"loss.views", {"2", {"augment.flip=0.5"}}},
          {"loss.label_smoothing", {"0.2"}},     {"loss.aux_weight", {"0.5", supcon}},
          {"loss.temperature", {"0.3", supcon}}, {"loss.margin", {"0.4", triplet}},
          {"loss.on_collapse", {"off"}}};
}

// Part contrast on views that differ. Three steps, because a prototype is made in the first one,
// enters the loss of the second one and has moved in that of the third one.
Settings part_contrast(const Settings& more = {}) {
  Settings out{"model.name=resnet20", "loss.method=paco", "augment.flip=0.5", "augment.ops=2",
               "trainer.steps=3"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::map<std::string, VisionChange> part_changes() {
  const auto with = part_contrast;
  // Nothing is left after the first peak.
  const Settings exhausted{"paco.suppression=fraction", "paco.suppression_fraction=1"};
  return {{"paco.preset", {"compat", with({})}},
          {"paco.parts", {"3", with({})}},
          {"paco.dim", {"32", with({})}},
          {"paco.caps", {"false", with({"paco.dim=65"})}},
          {"paco.window", {"3", with({})}},
          {"paco.stage", {"penultimate", with({})}},
          {"paco.joint_views", {"true", with({})}},
          {"paco.saliency", {"norm", with({})}},
          {"paco.suppression", {"fraction", with({})}},
          {"paco.suppression_fraction", {"0.3", with({"paco.suppression=fraction"})}},
          {"paco.repeat_peaks", {"true", with(exhausted)}},
          {"paco.eta_soc", {"0.2", with({})}},
          {"paco.soc_metric", {"stein", with({})}},
          {"paco.soc_scale", {"none", with({})}},
          {"paco.soc_epsilon", {"0.01", with({})}},
          {"paco.beta", {"0.5", with({})}},
          {"paco.prototype", {"diagonal", with({})}},
          {"paco.prototype_init", {"identity", with({})}},
          {"paco.prototype_momentum", {"0.5", with({})}},
          {"paco.ce_weight", {"attached", with({})}},
          {"paco.ce_views", {"mean", with({})}},
          {"paco.gamma", {"0.5", with({})}}};
}

std::map<std::string, VisionChange> contrast_changes() {
  const auto with = part_contrast;
  // Parts are matched by the metric from the first step on, which a high floor makes Euclidean.
  const Settings thin{"paco.delta=absolute", "paco.delta_floor=0.001", "paco.warm_up_epochs=0"};
  // A step is a pass, so that the warm-up of three passes, which match_metric = cosine does not let
  // be changed, ends before the run.
  const Settings passes{"data.leaves.train=2", "trainer.micro_batch=6", "trainer.steps=8"};
  // With seven parts, greed rarely finds the least total.
  const Settings many{"paco.parts=7", "paco.caps=false"};
  return {{"paco.lambda_pac", {"0.5", with({})}},
          {"paco.alpha", {"0.4", with({})}},
          {"paco.mining", {"hardest", with({})}},
          {"paco.screen_top_m", {"1", with({})}},
          {"paco.pool", {"one_image", with({})}},
          {"paco.mask_owner", {"false", with({"paco.mask_class=false"})}},
          {"paco.mask_class", {"false", with({})}},
          {"paco.hinge", {"softplus", with({})}},
          {"paco.distance_scale", {"none", with({})}},
          {"paco.refresh_every", {"3", with(passes)}},
          {"paco.delta", {"absolute", with({})}},
          {"paco.delta_floor", {"0.01", with({"paco.delta=absolute"})}},
          {"paco.match_floor", {"100", with(thin)}},
          {"paco.rho", {"0.5", with({})}},
          {"paco.pooled", {"0.5", with({})}},
          {"paco.metric_grad", {"false", with({})}},
          {"paco.match_metric", {"cosine", with(passes)}},
          {"paco.warm_up_epochs", {"0", with({})}},
          {"paco.solver", {"greedy", with(many)}}};
}

// Results keep their bits, or all but the last ones, by design, as the tests of the task and of
// batches say; the last one, which leaves do not read, has a test below.
const std::set<std::string> kVisionSeenElsewhere{"data.workers", "data.prefetch", "data.memory_mb",
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
  for (const Settings* list : {&kVisionBase, &kLeaves}) {
    for (const std::string& one : *list) set_config(first.config, one);
  }
  set_config(first.config, "trainer.seed=9");
  testing::internal::CaptureStderr();
  const fs::path init = train_vision(first).model;
  testing::internal::GetCapturedStderr();
  std::map<std::string, VisionChange> known = changes(init);
  for (const auto& more : {loss_changes(), part_changes(), contrast_changes()}) {
    known.insert(more.begin(), more.end());
  }
  std::map<Settings, std::string> without;
  without[{}] = run(kLeaves, {});
  ASSERT_TRUE(run(kLeaves, {}) == without[{}]) << "the same run twice leaves the same";
  const std::set<std::string> of_lm = keys_of_lm();
  task::VisionConfig config;
  for (const ConfigEntry& entry : config_entries(config)) {
    const std::string name(entry.name);
    const bool is_of_lm = of_lm.contains(name) && !known.contains(name);
    if (is_of_lm || kVisionSeenElsewhere.contains(name)) continue;
    ASSERT_TRUE(known.contains(name)) << "a new key needs an entry above: " << name;
    const VisionChange& change = known.at(name);
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
