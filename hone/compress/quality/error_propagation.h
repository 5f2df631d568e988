// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/thread/executor.h"
#include "hone/model_io/model_file.h"

namespace hone::compress {

// The error of the residual stream behind a layer, or behind the embedding (layer -1), relative to
// the stream: √(mean over tokens of ‖ĥ - h‖² / ‖h‖²), where h is the original's and ĥ the changed
// model's. Four figures for each layer f, which became f̂:
//   local      of f̂(h) against f(h): what the layer adds
//   predicted  to first order, if errors of layers are independent: p² = g² p₋² + local², with the
//              gain g of a small random error of the stream
//   bound      b = G b₋ + ‖f̂(ĥ) - f(ĥ)‖ by the triangle inequality, with the largest gain G of a
//              text; it holds for these texts, since attention and norms have no gain for all
//   measured
struct LayerError {
  Index layer = -1;
  double local = 0, predicted = 0, bound = 0, measured = 0;
  double gain = 1, largest_gain = 1;
};

// Runs the texts through both models layer by layer. Both have as many layers and streams of the
// same width.
std::vector<LayerError> propagate_errors(const model_io::ModelFile& original,
                                         const model_io::ModelFile& changed,
                                         const std::vector<std::vector<text::TokenId>>& texts,
                                         Executor& executor);
Json to_json(const std::vector<LayerError>& errors);

}  // namespace hone::compress
