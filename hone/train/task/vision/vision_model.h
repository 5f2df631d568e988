// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hone/data/leaves/leaf_cues.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/nn/vision.h"
#include "hone/train/paco/sampler.h"
#include "hone/train/task/vision/image_batches.h"

namespace hone::task {

// "format" in config.json.
inline constexpr const char* kVisionFormat = "hone-vision";

// Where a ResNet's parts were taken from in training.
struct PartSpec {
  nn::ResNetImpl::Stage stage = nn::ResNetImpl::Stage::Last;
  paco::SamplerOptions sampler;
};

// A trained classifier and what it needs to be used.
struct VisionModel {
  nn::VisionNet net;
  std::vector<std::string> classes;  // by label
  ChannelStats stats;                // the model takes (value / 255 - mean) / std
  // Images are scaled to squares of this side, and what the model takes is cut from their middle;
  // 0: they are scaled to what it takes.
  Index image_side = 0;
  std::optional<data::LeavesOptions> leaves = {};  // those that it was trained on
  std::optional<PartSpec> parts = {};              // of a ResNet that was trained with parts

  // The shape of an image before the cut, and the cut.
  data::ImageShape image_shape() const;
  data::AugmentOptions cut() const;
};

// model.safetensors (parameters_by_path() and buffers_by_path()) and config.json ({"format":
// "hone-vision", "model", "width", "layers", "channels", "height", "image_width", "image_side",
// "classes", "mean", "std"}), through AtomicFolder. Where they are set, config.json also has
// "leaves": {"classes", "size", "train", "val", "test", "difficulty", "seed"} and "parts":
// {"stage": "last" or "penultimate", "count", "window", "saliency": "attention" or "norm",
// "suppression": "window" or "fraction", "fraction", "repeats": true or false}. Of a model with
// factored layers it has "factored_layers", by path: {"mode": "low_rank", "rank"} or {"mode":
// "sketched", "rank", "terms", "seed"}. Their tensors are those of nn::FactoredLinear and
// nn::SketchedConv2d without the buffer `sketch`, which is what the seed and the terms say.
// Error{Unsupported} as from factored_layers_of().
void write_vision_model(const std::filesystem::path& folder, const VisionModel& model);
// Reads what write_vision_model wrote. Throws Error{NotFound}; Error{Unsupported} for a folder of
// another format; Error{CorruptFile} for a config.json or a tensor that does not fit the model it
// names.
VisionModel read_vision_model(const std::filesystem::path& folder);

}  // namespace hone::task
