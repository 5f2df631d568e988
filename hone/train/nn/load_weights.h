// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/tensor_file.h"

namespace hone::nn {

struct LoadOptions {
  // If true, a mismatch is an error and nothing is loaded.
  bool strict = false;
  // True if the module's factored layers already have the signs that the file was trained with,
  // such as layers made from a classifier's config.json. Then the file may lack their recipe,
  // "sketch".
  bool has_recipes = false;
};

// The loaded tensors, and the names of those that do not match.
struct LoadedWeights {
  Index tensors = 0;                    // number of loaded tensors
  std::vector<std::string> parameters;  // names of loaded parameters
  std::vector<std::string> missing;     // in the module, not in the file
  std::vector<std::string> unexpected;  // in the file, not in the module
  std::vector<std::string> misshaped;   // "conv1.weight [64, 3, 7, 7] (model: [64, 1, 7, 7])"
  // Mismatches of the classifier's entries. A classifier is loaded completely or not at all.
  std::vector<std::string> classifier;

  bool is_complete() const;
  // The lists in one line, with the first few names of each: "missing: fc.bias; unexpected: x and 3
  // more". Empty if everything matches.
  std::string mismatches() const;
};

// Copies the tensors of a safetensors file into the parameters and buffers with the same names and
// shapes. Names are those of parameters_by_path(); a prefix "module." in the file is ignored. A
// classifier is "fc.*" or "linear.*". Converts floating-point types; an integer does not fit a
// floating-point tensor. A missing num_batches_tracked, which affects no result, is not a mismatch.
//
// Throws, and changes nothing: Error{NotFound}; Error{CorruptFile} for a damaged file, NaN or
// infinity in a tensor to be loaded, or a duplicate name; Error{Unsupported} for a file of
// torch.save; Error{InvalidArgument} that names entries if no parameter fits or, with `strict`, if
// there is any mismatch.
LoadedWeights load_weights(torch::nn::Module& module, const std::filesystem::path& file,
                           const LoadOptions& options = {});

// The same with the tensors of the file `where`.
LoadedWeights load_weights(torch::nn::Module& module, std::vector<NamedTensor> stored,
                           const std::string& where, const LoadOptions& options = {});

// The safetensors file of a model: the path itself if it is a file, or model.safetensors in a model
// folder or in the folder model/ of a run. Throws Error{NotFound}.
std::filesystem::path weights_file_of(const std::filesystem::path& model);

// Throws Error{CorruptFile} that names the file and the tensor for NaN, infinity, and variances
// below 0.
void check_values(const torch::Tensor& value, std::string_view name, const std::string& file);

}  // namespace hone::nn
