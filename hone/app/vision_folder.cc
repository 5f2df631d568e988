// SPDX-License-Identifier: Apache-2.0
#include "hone/app/vision_folder.h"

#include <array>
#include <fstream>

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

bool is_archive(const std::filesystem::path& path) {
  constexpr std::array kZip = {'P', 'K', '\3', '\4'};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // a pipe would wait
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> begin{};
  return file.read(begin.data(), begin.size()) && begin == kZip;
}

}  // namespace hone::app
