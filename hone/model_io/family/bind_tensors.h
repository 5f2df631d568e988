// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "hone/model_io/family/file_tensors.h"
#include "hone/model_io/loaded_model.h"

namespace hone::model_io {

// Whether readers skip a tensor of a Hugging Face file: a buffer that follows from other data.
bool is_ignorable(std::string_view name, const Architecture& architecture);

// Replaces model.matrices, which have the names and storage of a file of `format`, by those of
// tensor_plan.h. Stacked tensors become views of their rows; transposed ones are copied, at most
// one at a time on top of the result. Throws Error{CorruptFile} that names a tensor that is missing
// (with its shape), has another shape, occurs twice, or is unknown.
//
// A file may have an output matrix although the model ties it to the embedding. If the values of
// the two differ, the matrix is used, as in transformers: the architecture becomes untied, and a
// warning is logged. Otherwise the matrix is ignored.
void bind_tensors(LoadedModel& model, FileFormat format, const std::string& where);

}  // namespace hone::model_io
