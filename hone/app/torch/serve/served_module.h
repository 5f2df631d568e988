// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/surgery/module_call.h"

namespace hone::app {

// A model that maps one tensor to one tensor, ready to serve.
struct ServedModule {
  nn::ModuleCall module;
  std::string kind;                    // "classifier" or "torchscript"
  std::vector<std::string> classes{};  // of a classifier, by output
  std::vector<std::int64_t> shape{};   // of an input; empty if it is not known
  // An image file as an input. Null if the model takes none. Thread-safe. Throws
  // Error{CorruptFile}, which names `where`.
  std::function<torch::Tensor(std::span<const std::byte> file, std::string_view where)>
      read_image{};
};

// Runs zeros of the shape of an input, if it is known: LibTorch prepares much in the first runs.
// Throws Error{InvalidArgument} if the outputs are not finite.
void warm_up(const ServedModule& module);

// Opens the folder of a classifier that `hone train vision` wrote, or a TorchScript file. Throws
// what task::read_vision_model() and nn::load_script() throw, and Error{Unsupported} for a script
// whose forward() does not take one tensor.
ServedModule open_served_module(const std::filesystem::path& model);

}  // namespace hone::app
