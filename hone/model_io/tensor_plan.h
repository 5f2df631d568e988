// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/model_io/architecture.h"

namespace hone::model_io {

// A tensor of an architecture, under its Hugging Face name. Vectors have rows = 1.
struct PlannedTensor {
  std::string name;
  Index rows = 0, cols = 0;
  bool is_vector = false;
};

// All tensors of an architecture: the embedding, the layers in order, the final norm, and the
// output matrix unless it is tied.
std::vector<PlannedTensor> plan_tensors(const Architecture& architecture);

// "model.layers.<layer>.<part>"
std::string layer_name(Index layer, std::string_view part);

}  // namespace hone::model_io
