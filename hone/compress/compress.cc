// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/compress.h"

#include "hone/compress/method/quantize_pass.h"
#include "hone/core/check.h"

namespace hone::compress {

Result compress(const model_io::ModelFile& original, const Recipe& recipe, Context& context) {
  HONE_REQUIRE(!recipe.passes.empty(), "compress", "The recipe has no pass.");
  Result result{Model(original), {}, false};
  for (const QuantizePass& options : recipe.passes) {
    throw_if_cancelled(context);
    result.passes.push_back(make_quantize_pass(options, recipe)->apply(result.model, context));
    if (result.passes.back().status == Status::Failed && recipe.gate.on_fail == OnFail::Stop) {
      result.stopped = true;
      break;
    }
  }
  return result;
}

}  // namespace hone::compress
