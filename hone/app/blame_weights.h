// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>

#include "hone/core/function_ref.h"

namespace hone::app {

// Does `work`. When that ends in an Error and one of `models` (empty paths are passed over) has a
// weight that is NaN or infinite: Error{CorruptFile} naming the file and the tensor instead. Only a
// failure pays for reading every weight; loading a model does not.
void blame_weights(std::span<const std::filesystem::path> models, FunctionRef<void()> work);

}  // namespace hone::app
