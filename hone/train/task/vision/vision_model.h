// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hone/data/leaves/leaf_cues.h"
#include "hone/model_io/json_fields.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/nn/vision.h"
#include "hone/train/paco/sampler.h"
#include "hone/train/task/vision/image_batches.h"

namespace hone::task {

// "format" in config.json.
inline constexpr const char* kVisionFormat = "hone-vision";

// How the parts of a ResNet were sampled in training.
struct PartSpec {
  nn::ResNetImpl::Stage stage = nn::ResNetImpl::Stage::Last;
  paco::SamplerOptions sampler;
};

// A trained classifier and the information that its use requires.
struct VisionModel {
  nn::VisionNet net;
  std::vector<std::string> classes;  // by label
  ChannelStats stats;                // the model takes (value / 255 - mean) / std
  // Images are scaled to squares of this side, and the input is cut from their center. 0: images
  // are scaled to the size of the input.
  Index image_side = 0;
  std::optional<data::LeavesOptions> leaves = {};  // the leaf images of the training
  std::optional<PartSpec> parts = {};              // for a ResNet that was trained with parts

  // The shape of an image before the cut, and the cut.
  data::ImageShape image_shape() const;
  data::AugmentOptions cut() const;
};

// Writes model.safetensors (parameters_by_path() and buffers_by_path()) and config.json through
// AtomicFolder. config.json has {"format": "hone-vision", "model", "width", "layers", "channels",
// "height", "image_width", "image_side", "classes", "mean", "std"}. If they are set, it also has
// "leaves": {"classes", "size", "train", "val", "test", "difficulty", "seed"} and "parts":
// {"stage": "last" or "penultimate", "count", "window", "saliency": "attention" or "norm",
// "suppression": "window" or "fraction", "fraction", "repeats": true or false}, and "inner_widths"
// a list of whole numbers.
//
// A model with factored layers has "factored_layers" by path: {"mode": "low_rank", "rank"} or
// {"mode": "sketched", "rank", "terms", "seed"}. Their tensors are those of nn::FactoredLinear and
// nn::SketchedConv2d without the buffer `sketch`, which follows from the seed and the terms. Throws
// Error{Unsupported} like factored_layers_of(). Quantized layers are stored as their codes, and
// weights of which many are 0 without their zeros (StoredLayers). Quantized layers that compute
// with a decoded copy are in "decoded_layers".
void write_vision_model(const std::filesystem::path& folder, const VisionModel& model);
// Reads the folder of write_vision_model(). Throws Error{NotFound}; Error{Unsupported} for a folder
// of another format; Error{CorruptFile} for a config.json that is not valid, or a tensor that does
// not fit its model.
VisionModel read_vision_model(const std::filesystem::path& folder);

// "inner_widths" of a config.json: the channels between the convolutions of a ResNet of which some
// were removed. Empty if it has none. Throws Error{CorruptFile}.
std::vector<Index> read_inner_widths(const model_io::JsonFields& config);
// Reads them from the folder of these weights (nn::weights_file_of()), if its model has the same
// architecture and width; otherwise there are none.
std::vector<Index> inner_widths_like(const nn::VisionSpec& spec,
                                     const std::filesystem::path& weights);

}  // namespace hone::task
