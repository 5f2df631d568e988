// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string_view>

#include "hone/core/index.h"

namespace hone::nn {

// The costs of a factored layer. FLOPs count the products, with two per multiplication and
// addition: for one row of a linear layer, or one output pixel of a convolution.
struct LayerFacts {
  Index trainable = 0;  // number of trainable values, including the bias
  // Bytes of the layer's tensors in a file, and of everything that the layer keeps in memory,
  // including the signs that a file does not contain.
  Index stored_bytes = 0, resident_bytes = 0;
  Index forward_flops = 0, backward_flops = 0;
  // Forward FLOPs divided by those of the dense layer. Above 1, the dense layer is cheaper.
  double break_even = 0;
};

// The bytes of a tensor's numbers; 0 for an undefined tensor.
Index bytes_of(const at::Tensor& tensor);

// Sets the receiver of one sentence for each new layer past its break-even; the default is
// log_warning. Returns the previous receiver. An empty function restores the default.
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
// Throws Error{InvalidArgument} that begins with [layer] unless all sizes are in [1, 2^30].
void check_size(std::string_view layer, const FactorSize& size);
// Calls the receiver if the size is past its break-even.
void warn_past_break_even(std::string_view layer, const FactorSize& size);

}  // namespace hone::nn
