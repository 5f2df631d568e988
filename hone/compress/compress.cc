// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/compress.h"

#include <memory>

#include "hone/compress/method/quantize_pass.h"
#include "hone/core/check.h"

namespace hone::compress {

namespace {

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
  for (const std::unique_ptr<Pass>& pass : make_passes(result.model, recipe)) {
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
