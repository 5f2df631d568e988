// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/machine/measurer.h"
#include "hone/train/surgery/layer_select.h"
#include "hone/train/surgery/module_call.h"

// Stores the weights of a model in few bits and computes with them.
namespace hone::nn {

struct QuantizeOptions {
  // A format and, behind colons, how codes are chosen: "int8:row", "int4:g64:gptq", "log4:g32",
  // "q4_0:importance" (compress::parse_quantize_option); "f16" or "bf16"; or "float" for those
  // layers that `formats` does not name.
  std::string spec = "int8:row";
  // "PATTERN=FORMAT" for layers whose path matches a pattern of LayerSelector; the last one that
  // matches wins. "PATTERN=float" leaves layers alone.
  std::vector<std::string> formats = {};
  bool act_int8 = true;  // whether products quantize their inputs to int8 in groups of 32
  // Inputs of the model, for "importance" and "gptq".
  std::vector<torch::Tensor> calibration = {};
  // An input on which errors and times are measured; undefined: the first calibration input.
  torch::Tensor example = {};
  double max_error = 0;  // relative, of the model's output; above it, nothing stays. 0: no limit
  MeasureOptions measure = {.max_seconds = 0.3, .warns_of_drift = false};  // for each layer
};

enum class CompressionStatus { Applied, Skipped, Failed };
std::string_view name_of(CompressionStatus status);  // "applied", …

struct QuantizedLayerRecord {
  std::string path, type;  // "layer1.0.conv1", "Conv2d"
  CompressionStatus status = CompressionStatus::Skipped;
  std::string reason = {};                  // one sentence
  std::string format = {}, algorithm = {};  // "int4:g64:asym", "gptq"
  Index bytes_before = 0, bytes_after = 0;
  double sqnr_db = 0;  // Σ w² / Σ (w − decoded)² in dB; the least of its matrices
  double error = 0;    // relative, of its output on the example; 0 if not known
  double float_ms = 0, packed_ms = 0;  // medians; 0 if not measured
  RatioInterval speedup = {};          // of the packed product over the float layer
  bool is_packed = true;  // if false, it computes with a decoded copy, since that is faster
};

struct QuantizeReport {
  std::vector<QuantizedLayerRecord> layers;  // every linear, convolution, LSTM and GRU layer
  Index bytes_before = 0, bytes_after = 0;   // of all parameters and buffers of the model
  double error = 0;                          // relative, of the model's output
  double agreement = 1;  // the share of rows of the output whose largest element is the same
  RatioInterval speedup = {};
  bool is_applied = false;
  std::string verdict;  // one sentence
  // Puts the float layers in, or the quantized ones again. Valid as long as the model, and while
  // these layers are not exchanged otherwise.
  std::function<void(bool on)> set_applied = {};

  double ratio() const {
    return static_cast<double>(bytes_before) / static_cast<double>(bytes_after);
  }
};
Json to_json(const QuantizeReport& report);

// Replaces each linear layer, convolution, LSTM and GRU that replace() or its own slot can exchange
// by one with weights in few bits. The old layers stay as they were, and dequantize() makes float
// layers again. With a measurer and an example, a layer whose packed product is slower than the
// float layer keeps its codes, and computes with a decoded copy. A layer that cannot be exchanged,
// that is tied to another, or whose weights the format cannot hold, is left alone with a reason; a
// model whose output is not finite or beyond max_error is put back.
//
// Throws Error{InvalidArgument} for a spec that is not known or calibration that is needed but
// absent, before anything is changed.
QuantizeReport quantize(const ModuleCall& model, const QuantizeOptions& options,
                        Measurer* measurer = nullptr);

// Replaces quantized layers by LibTorch's, with decoded weights. Returns how many.
Index dequantize(torch::nn::Module& model);

// The bytes of all parameters and buffers; those that are in several places count once.
Index stored_bytes(const torch::nn::Module& model);

}  // namespace hone::nn
