// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"
#include "hone/core/machine/measurer.h"

namespace hone::app {

// The forms of CompressVisionOptions::prune.
inline constexpr const char* kVisionPruneForms =
    "magnitude:FRACTION or gradient:FRACTION, both also with :global, channels:FRACTION or "
    "channels:FRACTION:gradient";

struct CompressVisionOptions {
  std::filesystem::path model, out;
  std::vector<std::string> prune;  // first, in this order; kVisionPruneForms
  // Formats of nn::QuantizeOptions: at most one for all layers, and any of "PATTERN=FORMAT". None:
  // weights stay in f32.
  std::vector<std::string> quantize;
  // Labeled images as for `hone train vision`: the training part calibrates, the held-out part
  // measures. data::kLeavesName stands for the leaf images of the training. May be empty.
  std::string data;
  Index calibration_images = 512;
  std::uint64_t seed = 0;
  int threads = 0;  // LibTorch threads; 0 means usable_cpus()
  std::stop_token stop = {};
};

struct CompressVisionResult {
  Json document;         // prune[], quantize{}, bytes_before, bytes_after, quality{} or null, out
  bool written = false;  // false if the quantized model was rejected
};

// Writes a smaller copy of a classifier that `hone train vision` wrote. Accuracies are those of the
// written folder and of the original on the same images. The original is not modified. Throws
// Error{InvalidArgument} for options that are not known, for methods that need images without
// `data`, and if `out` would replace the model or something other than a model.
CompressVisionResult compress_vision(const CompressVisionOptions& options, Measurer& measurer);
std::string to_table(const CompressVisionResult& result);

}  // namespace hone::app
