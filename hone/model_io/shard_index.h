// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hone::model_io {

inline constexpr std::string_view kWeightsFile = "model.safetensors";
inline constexpr std::string_view kShardIndexFile = "model.safetensors.index.json";

// Maps the tensors of a Hugging Face folder to the shards that hold them; empty if its weights are
// one file, or if there are none. Throws Error{CorruptFile} for an index that names anything but
// plain files of the folder.
std::map<std::string, std::string> read_shard_index(const std::filesystem::path& folder);

// The names of all shards, in alphabetical order, each once.
std::vector<std::string> shards_of(const std::map<std::string, std::string>& index);

}  // namespace hone::model_io
