// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/model_io/family/family.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::model_io {

// A tensor as a file of one format has it, and the tensors of hone that it holds, one below the
// other. [rows, cols] is the shape in the file; vectors have rows = 1.
struct FileTensor {
  std::string name;
  std::vector<PlannedTensor> parts = {};
  Index rows = 0, cols = 0;
  bool is_vector = false;
  bool is_transposed = false;  // the file has [inputs, outputs]
};

// The tensors of a model in a format, in the order of plan_tensors(). A model with factored layers
// has hone's own names in both.
std::vector<FileTensor> file_tensors(const Architecture& architecture, FileFormat format);

// "[3, 4]", or "[4]" for a vector
std::string shape_text(Index rows, Index cols, bool is_vector);

}  // namespace hone::model_io
