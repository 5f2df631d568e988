// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

namespace hone::infer {

enum class WeightFormat {
  File,  // as the file has them
  Q8,    // f32, f16 and bf16 matrices are quantized as Q8_0 while they are loaded
  Q4,    // the same as Q4_0
};

constexpr std::string_view name_of(WeightFormat format) {
  return format == WeightFormat::File ? "file" : format == WeightFormat::Q8 ? "q8" : "q4";
}

struct WeightOptions {
  WeightFormat format = WeightFormat::File;
  // A folder in which packed weights are kept, to be mapped by the next start; empty: none.
  std::filesystem::path pack_cache = {};
};

}  // namespace hone::infer
