// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/config/config_table.h"
#include "hone/data/image/augment.h"
#include "hone/data/leaves/leaf_cues.h"
#include "hone/train/optim/optim_config.h"
#include "hone/train/task/vision/loss_config.h"
#include "hone/train/trainer/distill_config.h"
#include "hone/train/trainer/trainer_config.h"

namespace hone::task {

// The configuration of `hone train vision` and `hone train paco`; docs/config.md lists every key.
struct VisionConfig {
  struct Model {
    std::string name = "cnn";  // of nn::vision_models()
    Index width = 0;           // 0: the model's own
    Index layers = 2;          // hidden layers of mlp
    std::string init = {};     // weights to start from
    bool channels_last = false;
  } model;
  struct Data {
    std::string path;
    Index image_size = 0;
    data::LeavesOptions leaves;
    Index validation_images = 2000;
    Index memory_mb = 1024, workers = 2, prefetch = 4;
  } data;
  data::AugmentOptions augment;
  LossConfig loss;
  trainer::DistillConfig distill;
  PacoConfig paco;
  optim::OptimConfig optim;
  optim::LrConfig lr;
  double backbone_scale = 1;  // lr.backbone_scale
  trainer::TrainerConfig trainer = {.steps = 1000, .micro_batch = 128, .checkpoint_every = 500};
  ConfigKeys given;  // keys that a file or an assignment has set
};

ConfigEntries config_entries(VisionConfig& config);
// The defaults of `hone train paco`.
VisionConfig part_contrast_config();
// Replaces paco.preset by its values for the keys that were not given.
VisionConfig apply_preset(VisionConfig config);
// The keys of [augment], and the keys of leaf images in [data].
void add_entries(ConfigEntries& entries, data::AugmentOptions& augment);
void add_entries(ConfigEntries& entries, data::LeavesOptions& leaves, std::string ignored_by);
// Rates and decays that train the small models well.
optim::RuleTable vision_rules();
// lr.peak, or the peak of the rule if that is 0.
double peak_of(const VisionConfig& config);
// Checks ranges, and that every key of `given` has an effect. Throws Error{InvalidArgument} that
// names the key.
void check_config(const VisionConfig& config);

}  // namespace hone::task
