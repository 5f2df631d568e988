// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

namespace hone::infer {

enum class WeightFormat {
  File,  // weights as in the file
  Q8,    // f32, f16 and bf16 matrices are quantized as Q8_0 while they are loaded
  Q4,    // likewise, as Q4_0
};

constexpr std::string_view name_of(WeightFormat format) {
  return format == WeightFormat::File ? "file" : format == WeightFormat::Q8 ? "q8" : "q4";
}

struct WeightOptions {
  WeightFormat format = WeightFormat::File;
  // A folder that caches packed weights, which the next start maps; empty: no cache.
  std::filesystem::path pack_cache = {};
};

}  // namespace hone::infer
