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
      "mlp; cnn: 3 x 3 convolutions with GroupNorm, each followed by 2 x 2 max pooling, until the "
      "side is at most 8; ResNets of He et al. (2015) with BatchNorm: resnet20, resnet32, "
      "resnet44, resnet56 for CIFAR-10, resnet18, resnet34, resnet50 for ImageNet");
  add("model.width", &model.width,
      "units per hidden layer (mlp), or channels of the first convolution (cnn: a multiple of 8); "
      "0: 256 for mlp, 32 for cnn, 16 for ResNets for CIFAR-10, 64 for ResNets for ImageNet");
  add("model.layers", &model.layers, "number of hidden layers of mlp");
  add.ignored_if(model.name != "mlp", concat("model.name = ", model.name));
  add("model.init", &model.init,
      "safetensors file, or folder of a model or a finished run, whose weights replace the new "
      "ones of the same name and shape; empty: none");
  add("model.channels_last", &model.channels_last,
      "store images and the weights of convolutions in the channels-last memory format");
  add.ignored_if(model.name == "mlp", "model.name = mlp");
}

void add_entries(ConfigEntries& entries, VisionConfig::Data& data) {
  const EntryAdder add{entries};
  add("data.path", &data.path,
      "folder with MNIST's IDX files, CIFAR-10's binary batches, or one folder of images per "
      "class, below train/ and test/ (or val/, valid/, validation/) if these exist; leaves: "
      "synthetic leaf images",
      false);
  add("data.image_size", &data.image_size,
      "side in pixels of the squares to which images of a folder are cropped and scaled; 0: 64, or "
      "the size of the classifier that the run starts or learns from. "
      "IDX, CIFAR-10 and leaves keep their own size and accept only 0 or that size");
  add("data.validation_images", &data.validation_images,
      "held-out images per validation during training; the final validation uses all");
  add("data.memory_mb", &data.memory_mb,
      "images of a folder, and synthetic leaf images, are kept in memory if they take at most this "
      "many MiB; otherwise they are decoded or drawn again each time",
      false);
  add("data.workers", &data.workers,
      "threads that prepare batches; their number does not change the result; 0: each batch is "
      "prepared when it is needed",
      false);
  add("data.prefetch", &data.prefetch, "maximum number of batches prepared ahead", false);
  task::add_entries(entries, data.leaves,
                    data.path == data::kLeavesName ? "" : "another data.path than leaves");
}

}  // namespace

void add_entries(ConfigEntries& entries, data::AugmentOptions& augment) {
  const EntryAdder add{entries};
  add("augment.side", &augment.side,
      "side in pixels of the square that is cropped from each image and that the model takes; in "
      "evaluation it is the center; 0: the whole image");
  add("augment.crop", &augment.crop,
      "position of the crop of a training image: center; random, which may extend beyond the edges "
      "by augment.crop_padding");
  add("augment.crop_padding", &augment.crop_padding,
      "pixels by which a random crop may extend beyond each edge, filled with the mean color");
  add.ignored_if(augment.crop == "center", "augment.crop = center");
  add("augment.flip", &augment.flip, "probability that a training image is mirrored left to right");
  add("augment.ops", &augment.ops,
      "number of random operations on each training image, drawn with replacement from rotation, "
      "brightness, contrast, saturation, hue and sharpness");
  add("augment.magnitude", &augment.magnitude,
      "strength m of these operations, 0 to 10: rotation by up to 3 m degrees; brightness, "
      "contrast and saturation by factors of up to 1 +- 0.05 m; hue by up to 0.02 m turns; "
      "sharpness by a factor of up to 1 +- 0.1 m");
  add.ignored_if(augment.ops <= 0, "augment.ops = 0");
  add("augment.occlude", &augment.occlude,
      "probability that a square of a training image is filled with the mean color of the image");
  add("augment.occlude_area", &augment.occlude_area,
      "area of this square as a fraction of the image; its side is at most a quarter of the "
      "image's shorter side");
  add.ignored_if(augment.occlude <= 0, "augment.occlude = 0");
  add("augment.shuffle", &augment.shuffle,
      "probability that grid cells of a training image are swapped in pairs");
  add("augment.shuffle_cells", &augment.shuffle_cells,
      "number of cells to swap, or all if there are fewer");
  add.ignored_if(augment.shuffle <= 0, "augment.shuffle = 0");
  add("augment.shuffle_grid", &augment.shuffle_grid,
      "side of a grid cell in pixels; an image with fewer than 2 cells along an axis is not "
      "changed");
  add.ignored_if(augment.shuffle <= 0, "augment.shuffle = 0");
}

void add_entries(ConfigEntries& entries, data::LeavesOptions& leaves, std::string ignored_by) {
  const EntryAdder add{entries, std::move(ignored_by)};
  add("data.leaves.classes", &leaves.classes,
      "number of leaf classes, 2 to 1000; they differ in the spacing of veins, the shape of "
      "blotches and the distance of notches");
  add("data.leaves.size", &leaves.size, "side of a leaf image in pixels, 32 to 512");
  add("data.leaves.train", &leaves.train, "training images of each class");
  add("data.leaves.val", &leaves.val, "held-out images of each class");
  add("data.leaves.difficulty", &leaves.difficulty,
      "how much veins, blotches and notches vary within a class, 0 to 1");
  add("data.leaves.seed", &leaves.seed, "seed of the synthetic leaf images");
}

ConfigEntries config_entries(VisionConfig& config) {
  ConfigEntries entries;
  add_entries(entries, config.model);
  add_entries(entries, config.data);
  add_entries(entries, config.augment);
  add_entries(entries, config.loss);
  trainer::add_entries(entries, config.distill,
                       "folder of a classifier or of a finished run, for images of the same size");
  add_entries(entries, config.paco, config.loss);
  add_entries(entries, config.optim, vision_rules());
  add_entries(entries, config.lr, vision_rules());
  const EntryAdder add{entries};
  add("lr.backbone_scale", &config.backbone_scale,
      "factor on the learning rate, and therefore on decoupled weight decay, of the parameters "
      "loaded by model.init; new parameters have the full rate. 0: loaded parameters keep their "
      "values, but BatchNorm's running means and variances still change");
  add.ignored_if(config.model.init.empty(), "an empty model.init");
  add_entries(
      entries, config.trainer,
      {.samples = "images",
       .seed = "seed of initial weights, data order and augmentation",
       .max_memory =
           "MiB that tensors may take. If a step would exceed it, the blocks of a ResNet are "
           "recomputed in the backward pass, and micro-batches of other models, which have no "
           "BatchNorm, are halved; if that is not enough, the run ends. 0: no limit",
       .parts = "ResNet block across all stages"});
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
  check_config(config.distill);
  HONE_CHECK(config.distill.teacher.empty() || config.loss.method == "ce", "loss.method",
             "ce with distill.teacher", config.loss.method);
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
