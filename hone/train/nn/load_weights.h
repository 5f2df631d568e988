// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hone/core/index.h"

namespace hone::nn {

struct LoadOptions {
  // Whether an entry that does not match is an error, and nothing is loaded then.
  bool strict = false;
  // Whether the module's factored layers already have the signs that the file was trained with, as
  // those made from a classifier's config.json do. The file may then lack their recipe, "sketch".
  bool has_recipes = false;
};

// What was loaded and, by name, what was not.
struct LoadedWeights {
  Index tensors = 0;                    // loaded ones
  std::vector<std::string> parameters;  // those of them that are parameters, by name
  std::vector<std::string> missing;     // of the module, not in the file
  std::vector<std::string> unexpected;  // in the file, not of the module
  std::vector<std::string> misshaped;   // "conv1.weight [64, 3, 7, 7] (model: [64, 1, 7, 7])"
  // The same for the entries of a classifier. It is loaded as a whole or not at all.
  std::vector<std::string> classifier;

  bool is_complete() const;
  // The lists as one line with the first few names of each: "missing: fc.bias; unexpected: x and 3
  // more"; empty where the file matches.
  std::string mismatches() const;
};

// Copies the tensors of a safetensors file into the parameters and buffers of the same names and
// shapes. A prefix "module." of the file's names is ignored. A classifier is "fc.*" or "linear.*".
// Floating-point types are converted; an integer does not fit a floating-point tensor. Names are
// those of parameters_by_path(). A missing num_batches_tracked, which affects no result, is not a
// mismatch.
//
// Throws, and changes nothing: Error{NotFound}; Error{CorruptFile} for a damaged file, NaN or
// infinity in a tensor that would be loaded, or a name that is there twice; Error{Unsupported} for
// a file of torch.save; Error{InvalidArgument} that names entries if no parameter fits or, with
// `strict`, if anything does not.
LoadedWeights load_weights(torch::nn::Module& module, const std::filesystem::path& file,
                           const LoadOptions& options = {});

// The safetensors file of a model: the path itself if it is a file, or model.safetensors in a model
// folder or in the folder model/ of a run. Throws Error{NotFound}.
std::filesystem::path weights_file_of(const std::filesystem::path& model);

}  // namespace hone::nn
