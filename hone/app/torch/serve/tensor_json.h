// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/server/api/fields.h"

namespace hone::app {

// Tensors as requests and answers have them: nested arrays of numbers; {"dtype", "data"} with such
// arrays; or {"dtype", "shape", "b64"} with the values in little endian. A type is "f32" (default),
// "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8" or "bool".

// Throws ApiError{400} that names `path` for anything else, for rows of different lengths and for
// more than 8 dimensions.
torch::Tensor read_tensor(const Json& json, const std::string& path);
// A tensor of one of these types as nested arrays, or with `is_base64` as the last form. Numbers
// that JSON does not have, infinite and NaN, become null in arrays. Throws Error{Unsupported} for a
// tensor of another type.
Json tensor_json(const torch::Tensor& tensor, bool is_base64);

}  // namespace hone::app
