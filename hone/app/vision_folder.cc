// SPDX-License-Identifier: Apache-2.0
#include "hone/app/vision_folder.h"

#include "hone/core/error.h"
#include "hone/core/file/json_io.h"

namespace hone::app {

bool is_vision_model(const std::filesystem::path& path) {
  if (path.empty()) return false;
  std::error_code error;
  const std::filesystem::path config = path / "config.json";
  if (!std::filesystem::is_regular_file(config, error)) return false;
  try {
    const Json json = read_json_file(config);
    return json.is_object() && json.value("format", Json()) == "hone-vision";
  } catch (const Error&) {
    return false;
  }
}

}  // namespace hone::app
