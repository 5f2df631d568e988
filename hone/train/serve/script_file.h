// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <exception>
#include <filesystem>
#include <string>

namespace hone::nn {

// Loads a TorchScript file in evaluation mode. Throws Error{NotFound}, and Error{CorruptFile} for
// what LibTorch cannot load.
torch::jit::Module load_script(const std::filesystem::path& file);

// One line of what LibTorch says: the last one of an error in a script, which is the error itself,
// and the first one of others.
std::string script_problem(const std::exception& error);

}  // namespace hone::nn
