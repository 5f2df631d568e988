// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace hone::app {

// Whether this is the folder of a classifier that `hone train vision` wrote: its config.json says
// "format": "hone-vision". Returns false if it cannot be read.
bool is_vision_model(const std::filesystem::path& path);

// Whether this is a file that begins as a ZIP archive, which TorchScript files are. Returns false
// if it cannot be read.
bool is_archive(const std::filesystem::path& path);

}  // namespace hone::app
