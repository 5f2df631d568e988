// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/thread/executor.h"
#include "hone/model_io/write_model.h"

namespace hone::infer {

// The type to which dense weights are quantized while a model is loaded. nullopt keeps the file's
// type.
using LoadType = std::optional<model_io::StoreType>;  // Q8_0 or Q4_0

// The type to which this tensor is encoded, by the rules of `hone convert`: matrices become `type`,
// or f16 if their columns are not a multiple of 32. Returns nullopt for a tensor that is not
// encoded: a vector, a matrix that has codes in the file, or any tensor without `type`. Matrices
// that do not become `type` are appended to `kept`, with the reason.
LoadType type_on_load(const model_io::NamedMatrix& tensor, LoadType type,
                      std::vector<model_io::KeptTensor>& kept);

// Describes the result of encode_on_load(), without bytes.
StoredMatrix describe_on_load(const StoredMatrix& matrix, model_io::StoreType type);

// Encodes a matrix of the file into `memory`, bit for bit as `hone convert` does, and releases the
// file's pages on the way. Throws Error{CorruptFile} for values that the type cannot represent.
StoredMatrix encode_on_load(const model_io::ModelFile& file, const model_io::NamedMatrix& tensor,
                            model_io::StoreType type, Executor& executor, Buffer& memory);

// Row `row` as describe_on_load() would decode it; out.size() == cols().
void decode_row_on_load(const model_io::NamedMatrix& tensor, model_io::StoreType type, Index row,
                        std::span<float> out);

}  // namespace hone::infer
