// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>

#include "hone/core/function_ref.h"

namespace hone::app {

// Runs `work`. If it throws an Error and a weight in one of `models` (empty paths are ignored) is
// NaN or infinite, throws Error{CorruptFile} that names the file and the tensor instead. The
// weights are read only after such a failure.
void blame_weights(std::span<const std::filesystem::path> models, FunctionRef<void()> work);

}  // namespace hone::app
