// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string_view>

#include "hone/core/index.h"

namespace hone::nn {

// What a factored layer costs. FLOPs are those of the products, where a multiplication and an
// addition count as two: of a row of a linear layer, of an output pixel of a convolution.
struct LayerFacts {
  Index trainable = 0;  // numbers, including the bias
  // Bytes of its tensors in a file, and of all that the layer holds in memory: also the signs that
  // a file does not have.
  Index stored_bytes = 0, resident_bytes = 0;
  Index forward_flops = 0, backward_flops = 0;
  // Forward FLOPs over those of the dense layer: above 1, the dense layer is cheaper.
  double break_even = 0;
};

// The bytes of a tensor's numbers; 0 for an undefined tensor.
Index bytes_of(const at::Tensor& tensor);

// Receives one sentence for each new layer that is past its break-even; by default log_warning.
// Returns the former receiver. An empty function restores the default.
using LayerWarning = std::function<void(std::string_view)>;
LayerWarning set_layer_warning(LayerWarning receiver);

// A matrix [inputs, outputs] as a product of rank `rank`.
struct FactorSize {
  Index inputs = 0, outputs = 0, rank = 0;

  Index numbers() const { return rank * (inputs + outputs); }
  double break_even() const {
    return static_cast<double>(numbers()) /
           (static_cast<double>(inputs) * static_cast<double>(outputs));
  }
  bool is_past_break_even() const { return numbers() > inputs * outputs; }
};
// Error{InvalidArgument} that begins with [layer] unless all sizes are in [1, 2^30].
void check_size(std::string_view layer, const FactorSize& size);
// Calls the receiver if the size is past its break-even.
void warn_past_break_even(std::string_view layer, const FactorSize& size);

}  // namespace hone::nn
