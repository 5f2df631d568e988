// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/model_io/model_file.h"
#include "hone/train/nn/llama.h"

namespace hone::nn {

// Copies the tensors of a model on disk, in any supported format, into a model on the CPU with the
// same architecture. Converts to f32, puts rows of q and k in half-split order, and subtracts the
// offset of the architecture from weights of norms. Returns the number of tensors.
//
// Throws Error{InvalidArgument} if names or shapes differ from `model`, and Error{CorruptFile} for
// NaN or infinity in a tensor. After an error, `model` may be partially loaded.
Index load_llama(LlamaImpl& model, const model_io::ModelFile& file);

}  // namespace hone::nn
