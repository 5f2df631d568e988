// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/model_io/metadata/model_metadata.h"

namespace hone::model_io {

// The keys general.* that llama.cpp's converter takes from the front matter of a model card: its
// license, languages, tags, base models, data sets, name and what the name consists of.
std::vector<MetadataEntry> read_model_card(std::string_view markdown, std::string_view where);

// A model card with these of the entries and the name as its title. Empty if there are none. What
// read_model_card() does not return the same way has no place in it.
std::string write_model_card(const ModelMetadata& metadata);

}  // namespace hone::model_io
