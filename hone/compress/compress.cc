// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/compress.h"

#include <memory>

#include "hone/compress/method/quantize_pass.h"
#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/model_io/write_plan.h"

namespace hone::compress {

namespace {

// Rounding what has been rounded before adds one error to the other.
void warn_of_quantized(const model_io::ModelFile& original, const Recipe& recipe) {
  const Index count = model_io::count_quantized(original.tensors());
  if (count == 0 || !recipe.requantize) return;
  log_warning(concat(original.files().front().string(), ": ", count,
                     " matrices are quantized already. Those that a pass names are decoded and ",
                     "rounded again, so start from the original weights if there are any."));
}

std::vector<std::unique_ptr<Pass>> make_passes(const Model& model, const Recipe& recipe) {
  HONE_REQUIRE(!recipe.passes.empty(), "compress", "The recipe has no pass.");
  std::vector<std::unique_ptr<Pass>> passes;
  for (const QuantizePass& options : recipe.passes) {
    passes.push_back(make_quantize_pass(options, recipe));
    passes.back()->check(model);
  }
  return passes;
}

}  // namespace

void check_recipe(const model_io::ModelFile& original, const Recipe& recipe) {
  make_passes(Model(original), recipe);
}

Result compress(const model_io::ModelFile& original, const Recipe& recipe, Context& context) {
  Result result{Model(original), {}, false};
  const std::vector<std::unique_ptr<Pass>> passes = make_passes(result.model, recipe);
  warn_of_quantized(original, recipe);
  for (const std::unique_ptr<Pass>& pass : passes) {
    throw_if_cancelled(context);
    result.passes.push_back(pass->apply(result.model, context));
    if (result.passes.back().status == Status::Failed && recipe.gate.on_fail == OnFail::Stop) {
      result.stopped = true;
      break;
    }
  }
  return result;
}

}  // namespace hone::compress
