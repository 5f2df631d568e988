// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/shard_index.h"

#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/core/names.h"
#include "hone/model_io/json_fields.h"

namespace hone::model_io {
namespace {

void check_shard_name(const std::string& name, const std::string& where) {
  const bool plain = !name.empty() && name.find_first_of("/\\") == std::string::npos &&
                     name != "." && name != ".." && name.find('\0') == std::string::npos;
  if (!plain)
    fail_corrupt(where, concat("The shard ", quote_name(name), " is not a plain file name."));
}

}  // namespace

std::map<std::string, std::string> read_shard_index(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kShardIndexFile;
  std::map<std::string, std::string> map;
  if (std::filesystem::exists(folder / kWeightsFile) || !std::filesystem::exists(path)) return map;
  const Json index = read_json_file(path, {.depth = 4});
  const JsonFields fields(index, path.string());
  const Json* weights = fields.find("weight_map");
  if (weights == nullptr || !weights->is_object() || weights->empty())
    fail_corrupt(path.string(), "weight_map is not an object of tensor names.");
  for (const auto& [tensor, shard] : weights->items()) {
    if (!shard.is_string()) fields.refuse("weight_map", "file names", shard.type_name());
    check_shard_name(shard.get_ref<const std::string&>(), path.string());
    map.emplace(tensor, shard.get<std::string>());
  }
  return map;
}

std::vector<std::string> shards_of(const std::map<std::string, std::string>& index) {
  std::vector<std::string> shards;
  for (const auto& [tensor, shard] : index) shards.push_back(shard);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  return shards;
}

}  // namespace hone::model_io
