// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/vision_config.h"

#include <array>
#include <utility>

#include "hone/core/check.h"
#include "hone/data/leaves/leaves.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/nn/vision.h"
#include "hone/train/optim/rule_table.h"

namespace hone::task {
namespace {

void add_entries(ConfigEntries& entries, VisionConfig::Model& model) {
  const EntryAdder add{entries};
  add("model.name", &model.name,
      "mlp; cnn: 3 x 3 convolutions with GroupNorm, each followed by a 2 x 2 maximum, until the "
      "side is at most 8; He et al. (2015) with BatchNorm: resnet20, resnet32, resnet44, resnet56 "
      "for CIFAR-10, resnet18, resnet34, resnet50 for ImageNet");
  add("model.width", &model.width,
      "units of a hidden layer (mlp), channels of the first convolution (cnn: a multiple of 8); 0: "
      "mlp 256, cnn 32, ResNets for CIFAR-10 16, those for ImageNet 64");
  add("model.layers", &model.layers, "hidden layers of mlp");
  add.ignored_if(model.name != "mlp", concat("model.name = ", model.name));
  add("model.init", &model.init,
      "safetensors file, or folder of a model or a finished run, whose weights replace the new "
      "ones of the same name and shape; empty: none");
  add("model.channels_last", &model.channels_last,
      "weights of convolutions and images in the layout in which channels are the fastest "
      "dimension");
  add.ignored_if(model.name == "mlp", "model.name = mlp");
}

void add_entries(ConfigEntries& entries, VisionConfig::Data& data) {
  const EntryAdder add{entries};
  add("data.path", &data.path,
      "folder: MNIST's IDX files, CIFAR-10's binary batches, or a folder of images for each class, "
      "below train/ and test/ (or val/, valid/, validation/) where there are such; leaves: drawn "
      "leaves",
      false);
  add("data.image_size", &data.image_size,
      "side of the squares that images of a folder are cut and scaled to; 0: 64. IDX, CIFAR-10 "
      "and leaves keep their size and take 0 or that");
  add("data.validation_images", &data.validation_images,
      "held-out images of a validation during training; the last one takes all");
  add("data.memory_mb", &data.memory_mb,
      "images of a folder, and leaves, are kept in memory up to this many MiB, and decoded or "
      "drawn again each time beyond",
      false);
  add("data.workers", &data.workers,
      "threads that prepare batches, with the same result for any number; 0: none, each is "
      "prepared when it is needed",
      false);
  add("data.prefetch", &data.prefetch, "batches that are prepared ahead at most", false);
  task::add_entries(entries, data.leaves,
                    data.path == data::kLeavesName ? "" : "another data.path than leaves");
}

}  // namespace

void add_entries(ConfigEntries& entries, data::AugmentOptions& augment) {
  const EntryAdder add{entries};
  add("augment.side", &augment.side,
      "side of the square that is cut out of each image, from its middle for evaluation, and that "
      "the model takes; 0: the whole image");
  add("augment.crop", &augment.crop,
      "where a training image is cut out: center; random, also beyond its edges by "
      "augment.crop_padding");
  add("augment.crop_padding", &augment.crop_padding,
      "pixels that a random cut may reach beyond each edge, over the mean color");
  add.ignored_if(augment.crop == "center", "augment.crop = center");
  add("augment.flip", &augment.flip, "probability that a training image is mirrored left to right");
  add("augment.ops", &augment.ops,
      "operations on each training image, drawn with replacement from rotation, brightness, "
      "contrast, saturation, hue and sharpness");
  add("augment.magnitude", &augment.magnitude,
      "how far these go, 0 to 10: rotation by up to 3 magnitude degrees; brightness, contrast and "
      "saturation by factors of up to 1 +- 0.05 magnitude; hue by up to 0.02 magnitude turns; "
      "sharpness by a factor of up to 1 +- 0.1 magnitude");
  add.ignored_if(augment.ops <= 0, "augment.ops = 0");
  add("augment.occlude", &augment.occlude,
      "probability that a square of a training image gets its mean color");
  add("augment.occlude_area", &augment.occlude_area,
      "share of the area that this square has; its side is at most a quarter of the shorter one");
  add.ignored_if(augment.occlude <= 0, "augment.occlude = 0");
  add("augment.shuffle", &augment.shuffle,
      "probability that cells of a grid on a training image change places in pairs");
  add("augment.shuffle_cells", &augment.shuffle_cells, "cells that do, or all if there are fewer");
  add.ignored_if(augment.shuffle <= 0, "augment.shuffle = 0");
  add("augment.shuffle_grid", &augment.shuffle_grid,
      "side of a cell in pixels; an image of less than 2 cells in an axis stays as it is");
  add.ignored_if(augment.shuffle <= 0, "augment.shuffle = 0");
}

void add_entries(ConfigEntries& entries, data::LeavesOptions& leaves, std::string ignored_by) {
  const EntryAdder add{entries, std::move(ignored_by)};
  add("data.leaves.classes", &leaves.classes,
      "2 to 1000 classes of leaves, which differ in the spacing of veins, the shape of blotches "
      "and the distance of notches");
  add("data.leaves.size", &leaves.size, "side of an image of a leaf, 32 to 512 pixels");
  add("data.leaves.train", &leaves.train, "training images of each class");
  add("data.leaves.val", &leaves.val, "held-out images of each class");
  add("data.leaves.difficulty", &leaves.difficulty,
      "0 to 1: how much those three vary within a class");
  add("data.leaves.seed", &leaves.seed, "of the leaves");
}

ConfigEntries config_entries(VisionConfig& config) {
  ConfigEntries entries;
  add_entries(entries, config.model);
  add_entries(entries, config.data);
  add_entries(entries, config.augment);
  add_entries(entries, config.loss);
  add_entries(entries, config.paco, config.loss);
  add_entries(entries, config.optim, vision_rules());
  add_entries(entries, config.lr, vision_rules());
  const EntryAdder add{entries};
  add("lr.backbone_scale", &config.backbone_scale,
      "factor of the learning rate, and so of decoupled weight decay, of the parameters that "
      "model.init gave; new ones have the whole rate. 0: they keep their values, but BatchNorm's "
      "running means and variances still move");
  add.ignored_if(config.model.init.empty(), "an empty model.init");
  add_entries(
      entries, config.trainer,
      {.samples = "images",
       .seed = "of initial weights, data order and augmentation",
       .max_memory = "MiB that tensors may take; where a step would exceed it: the blocks of a "
                     "ResNet are computed again in the backward pass, micro-batches of other "
                     "models, which have no BatchNorm, are halved, else the run ends; 0: no limit",
       .parts = "the blocks of a ResNet, counted through its stages,"});
  if (nn::find_resnet(config.model.name) == nullptr) {
    entries.back().ignored_by = concat("model.name = ", config.model.name);
  }
  return entries;
}

// The rates of the published code, and its augmentation of two views.
VisionConfig part_contrast_config() {
  VisionConfig config;
  config.model.name = "resnet20";
  config.augment.flip = 0.5;
  config.augment.ops = 2;
  config.augment.occlude = 0.3;
  config.augment.shuffle = 0.3;
  config.loss.method = "paco";
  config.loss.label_smoothing = 0.1;
  config.loss.on_collapse = "stop";
  config.optim.weight_decay = 1e-4;
  config.lr.peak = 1e-3;
  config.trainer.steps = 2000;
  config.trainer.micro_batch = 32;
  return config;
}

VisionConfig apply_preset(VisionConfig config) {
  check_config(config.paco);
  const ConfigEntries entries = config_entries(config);
  for (const std::string_view setting : preset_settings(config.paco.preset)) {
    const std::string_view key = setting.substr(0, setting.find('='));
    if (!config.given.contains(key)) set_entry(entries, setting);
  }
  config.paco.preset = "none";
  return config;
}

optim::RuleTable vision_rules() {
  static const std::vector<optim::RuleDefaults> rules =
      optim::defaults_of(&optim::RuleEntry::vision);
  return rules;
}

double peak_of(const VisionConfig& config) {
  return peak_of(config.optim, config.lr, vision_rules());
}

void check_config(const VisionConfig& config) {
  check_choice("model.name", config.model.name, nn::vision_models());
  check_range("model.width", config.model.width, 0, 1 << 16);
  check_range("model.layers", config.model.layers, 0, 64);
  const VisionConfig::Data& data = config.data;
  HONE_CHECK(!data.path.empty(), "data.path", "a folder of images, or leaves (--data)", "none");
  check_range("data.image_size", data.image_size, 0, 4096);
  check_range("data.validation_images", data.validation_images, 1, Index{1} << 40);
  check_range("data.memory_mb", data.memory_mb, 0, Index{1} << 30);
  check_range("data.workers", data.workers, 0, 256);
  check_range("data.prefetch", data.prefetch, 1, 1024);
  data::check_leaves(data.leaves);
  data::check_augment(config.augment);
  check_config(config.loss);
  check_config(config.paco);
  // Again in make_objective(), but before images are loaded.
  HONE_CHECK(config.loss.method == "ce" || nn::find_resnet(config.model.name) != nullptr,
             "model.name", concat("a ResNet for loss.method = ", config.loss.method),
             config.model.name);
  const Index least = nn::least_image_side(config.model.name);
  HONE_CHECK(config.augment.side == 0 || config.augment.side >= least, "augment.side",
             concat("0, or at least ", least, " for ", config.model.name), config.augment.side);
  check_config(config.optim, vision_rules());
  check_config(config.lr);
  check_range("lr.backbone_scale", config.backbone_scale, 0, 1000);
  check_config(config.trainer);
  check_given(config);
}

}  // namespace hone::task
