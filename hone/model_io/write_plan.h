// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hone/model_io/matrix_encoder.h"
#include "hone/model_io/write_model.h"

namespace hone::model_io {

// The source's tensors in the order of plan_tensors(). Error{InvalidArgument} naming `where` when
// they are not exactly what the architecture wants.
std::vector<const NamedMatrix*> order_tensors(const ModelSource& source, const std::string& where);

// The type a matrix gets in a format that knows all of StoreType: `wanted`, or its own; f16 with a
// line in `report.kept` where that cannot be. Vectors: f32.
StoreType choose_type(const NamedMatrix& tensor, std::optional<StoreType> wanted,
                      WriteReport& report);

// config.json, generation_config.json, tokenizer.json and tokenizer_config.json.
void write_hugging_face_texts(const std::filesystem::path& folder, const ModelSource& source,
                              Json config);

// torch's name of a dense type ("bfloat16").
std::string_view torch_name_of(StoreType type);

Index bytes_in(const std::filesystem::path& folder);

}  // namespace hone::model_io
