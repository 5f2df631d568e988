// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "hone/compress/allocate/knapsack.h"
#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

// Measures what each format would cost each group of matrices: the bytes, and a prediction of the
// mean KL divergence from the original, in nats per token. A group is the matrices of a layer that
// share an input (q, k and v; gate and up), or the embedding or the head alone. Only matrices that
// `names` accepts belong to groups.
//
// Every group is quantized alone, by plain rounding to one format of about 4 bits, and the KL
// divergence of the model is measured on at most recipe.allocate.tokens of the calibration text. To
// first order it is proportional to the squared error of the group's outputs, so that the others
// follow from the errors that GPTQ leaves in a sample of rows. For the embedding and the head every
// format is measured.
std::vector<MatrixGroup> measure_sensitivities(
    const Model& model, const Recipe& recipe,
    const std::function<bool(const model_io::NamedMatrix&)>& names, Context& context);

}  // namespace hone::compress
