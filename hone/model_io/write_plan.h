// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hone/model_io/matrix_encoder.h"
#include "hone/model_io/write_model.h"

namespace hone::model_io {

// The source's tensors in the order of plan_tensors(). Throws Error{InvalidArgument} that names
// `where` if they are not exactly those of the architecture.
std::vector<const NamedMatrix*> order_tensors(const ModelSource& source, const std::string& where);

// The type of a tensor in a format that supports all of StoreType: f32 for vectors, otherwise
// `requested` or the tensor's own; f16 with an entry in `report.kept` if neither is possible.
StoreType choose_type(const NamedMatrix& tensor, std::optional<StoreType> requested,
                      WriteReport& report);

// config.json, generation_config.json, tokenizer.json and tokenizer_config.json, and README.md if
// the model has a card or what belongs in one.
void write_hugging_face_texts(const std::filesystem::path& folder, const ModelSource& source,
                              Json config);

Index count_quantized(std::span<const NamedMatrix> tensors);

// The type in which quantized matrices are written where no format has theirs: f16 or bf16, as the
// model's other matrices have; otherwise the one that loses less, compared by the matrix that loses
// most of its squares. Reads all weights, unless the first rule decides.
StoreType choose_decoded_type(std::span<const NamedMatrix> tensors);

// torch's name of a dense type ("bfloat16").
std::string_view torch_name_of(StoreType type);

Index bytes_in(const std::filesystem::path& folder);

}  // namespace hone::model_io
