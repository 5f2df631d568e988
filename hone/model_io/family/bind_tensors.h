// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "hone/model_io/family/file_tensors.h"
#include "hone/model_io/loaded_model.h"

namespace hone::model_io {

// Whether readers skip a tensor of a Hugging Face file: a buffer that follows from other data, or
// the output matrix of a model that ties it to the embedding.
bool is_ignorable(std::string_view name, const Architecture& architecture);

// Replaces model.matrices, which have the names and storage of a file of `format`, by those of
// tensor_plan.h. Stacked tensors become views of their rows; transposed ones are copied, at most
// one at a time on top of the result. Throws Error{CorruptFile} that names a tensor that is missing
// (with its shape), has another shape, occurs twice, or is unknown.
void bind_tensors(LoadedModel& model, FileFormat format, const std::string& where);

}  // namespace hone::model_io
