// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/model_io/model_file.h"
#include "hone/train/nn/llama.h"

namespace hone::nn {

// Copies the tensors of a model on disk, whatever its format, into a model on the CPU with the same
// architecture: as f32, rows of q and k in half-split order, weights of norms without the offset
// that the model's architecture adds. Returns their number.
//
// Throws Error{InvalidArgument} if the tensors are not those of `model`, in names and shapes, and
// Error{CorruptFile} for NaN or infinity in one; `model` may have changed then.
Index load_llama(LlamaImpl& model, const model_io::ModelFile& file);

}  // namespace hone::nn
