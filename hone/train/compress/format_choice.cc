// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/format_choice.h"

#include <ATen/ATen.h>

#include <set>
#include <utility>

#include "hone/compress/method/gptq.h"
#include "hone/core/check.h"
#include "hone/train/interop.h"
#include "hone/train/surgery/layer_select.h"

namespace hone::nn {
namespace {

using compress::Rounding;
using torch::Tensor;

constexpr std::string_view kFormats = "quantize", kFloat = "float";

// Dense values of 16 bits. They are stored for the time of the constructor of StoredWeight.
StoredWeight store_dense(const Tensor& matrix, Dtype dtype) {
  const Tensor values = matrix.to(scalar_type_of(dtype)).contiguous();
  StoredMatrix stored;
  stored.rows = matrix.size(0);
  stored.cols = matrix.size(1);
  stored.dtype = dtype;
  stored.act_int8 = false;
  stored.bytes = tensor_bytes(values);
  return StoredWeight(stored);
}

}  // namespace

FormatChoice parse_format_choice(std::string_view spec) {
  if (spec == "f16") return {Dtype::Float16, {}};
  if (spec == "bf16") return {Dtype::BFloat16, {}};
  return {std::nullopt, compress::parse_quantize_option(spec)};
}

std::map<std::string, FormatChoice> choose_formats(torch::nn::Module& model,
                                                   const std::vector<QuantizableLayer>& layers,
                                                   const std::string& spec,
                                                   const std::vector<std::string>& formats) {
  std::map<std::string, FormatChoice> out;
  std::set<std::string> known;
  const auto common = spec == kFloat ? std::nullopt : std::optional(parse_format_choice(spec));
  for (const QuantizableLayer& layer : layers) {
    known.insert(layer.path);
    if (common) out[layer.path] = *common;
  }
  for (const std::string& entry : formats) {
    const std::size_t equals = entry.rfind('=');
    HONE_CHECK(equals != std::string::npos && equals > 0, kFormats, "PATTERN=FORMAT", entry);
    const std::string format = entry.substr(equals + 1);
    const auto choice =
        format == kFloat ? std::nullopt : std::optional(parse_format_choice(format));
    for (const Layer& layer : select_layers(model, {.pattern = {entry.substr(0, equals)}})) {
      if (choice && known.contains(layer.path)) out[layer.path] = *choice;
      if (!choice) out.erase(layer.path);
    }
  }
  return out;
}

EncodedWeight encode_weight(const FormatChoice& choice, const Tensor& matrix,
                            const std::string& name, const kernels::Gram* inputs, bool act_int8) {
  const compress::WeightMatrix weights{
      {matrix.data_ptr<float>(), static_cast<std::size_t>(matrix.numel())},
      matrix.size(0),
      matrix.size(1),
      name};
  compress::check_finite(weights);
  if (choice.dense) {
    StoredWeight weight = store_dense(matrix, *choice.dense);
    const double sqnr = compress::signal_to_noise_db(weights, weight.matrix());
    return {std::move(weight), "cast", sqnr};
  }
  Executor& executor = libtorch_executor();
  auto format =
      compress::format_for_columns(compress::parse_weight_format(choice.pass.spec), matrix.size(1));
  format = compress::format_for(format, weights);
  std::optional<compress::ErrorFeedback> feedback;
  if (inputs != nullptr && choice.pass.rounding == Rounding::Gptq) {
    feedback.emplace(
        *inputs,
        compress::FeedbackOptions{.act_order = choice.pass.act_order, .damp = choice.pass.damp},
        name, executor);
  }
  compress::Encoding encoding = compress::encode_matrix(
      *format, weights, {.clip = choice.pass.clip, .percentile = choice.pass.percentile}, inputs,
      feedback ? &*feedback : nullptr, executor);
  encoding.matrix.stored.act_int8 = act_int8;
  return {StoredWeight(encoding.matrix.stored), std::string(encoding.algorithm),
          compress::signal_to_noise_db(weights, encoding.matrix.stored)};
}

}  // namespace hone::nn
