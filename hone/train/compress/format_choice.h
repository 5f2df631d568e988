// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/compress/recipe.h"
#include "hone/kernels/linalg/gram.h"
#include "hone/train/compress/quantizable.h"

namespace hone::nn {

// What becomes of the weights of a layer.
struct FormatChoice {
  std::optional<Dtype> dense;  // f16 or bf16
  compress::QuantizePass pass;

  bool needs_inputs() const { return !dense && pass.rounding != compress::Rounding::Rtn; }
};

// "f16", "bf16", or what compress::parse_quantize_option() takes, whose errors it throws.
FormatChoice parse_format_choice(std::string_view spec);

// The choice for each path: `spec`, or that of the last "PATTERN=FORMAT" that matches. Layers with
// the format "float", which `spec` may also be, have none. Throws Error{InvalidArgument}, also for
// a pattern without a layer.
std::map<std::string, FormatChoice> choose_formats(torch::nn::Module& model,
                                                   const std::vector<QuantizableLayer>& layers,
                                                   const std::string& spec,
                                                   const std::vector<std::string>& formats);

struct EncodedWeight {
  StoredWeight weight;
  std::string algorithm;  // "rtn", "importance", "gptq" or "cast"
  double sqnr_db = 0;
};
// A matrix [outputs, inputs] in f32 in its format. `inputs` are the second moments of what it
// multiplies, or null. Throws Error{CorruptFile} for weights that the format cannot hold, and
// Error{InvalidArgument} for one that does not take so many columns.
EncodedWeight encode_weight(const FormatChoice& choice, const torch::Tensor& matrix,
                            const std::string& name, const kernels::Gram* inputs, bool act_int8);

}  // namespace hone::nn
