// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

// What a run will take and make, as far as it can be told before the work.
struct Forecast {
  Index file_bytes = 0;  // of the weights; that of a budget if there is one
  Index peak_bytes = 0;  // of memory, without the pages of mapped files
  double minutes = 0;
};

// The file to write.
struct Output {
  Index overhead = 0;  // bytes that belong to no tensor
  bool masks = true;   // whether it leaves zeros out
  bool codes = true;   // whether it holds quantized matrices; if not, they become f16
};

// Times one layer of the model on a few tokens and a product of matrices, and adds up what the
// recipe's passes will do. `card_tokens` are the tokens on which quality is measured after each
// pass, of all texts together.
Forecast forecast(const model_io::ModelFile& original, const Recipe& recipe, const Output& output,
                  Index card_tokens, Executor& executor);

}  // namespace hone::compress
