// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/compress.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "hone/compress/allocate/allocate.h"
#include "hone/compress/gate.h"
#include "hone/compress/method/low_rank_pass.h"
#include "hone/compress/method/prune_pass.h"
#include "hone/compress/method/quantize_pass.h"
#include "hone/compress/method/structure_pass.h"
#include "hone/compress/step_store.h"
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

std::unique_ptr<Pass> make_one(const PassOptions& options, const Recipe& recipe) {
  return std::visit([&](const auto& one) { return make_pass(one, recipe); }, options);
}

void check_passes(const Model& model, Recipe recipe, Index file_overhead) {
  HONE_REQUIRE(!recipe.passes.empty(), "compress", "The recipe has no pass.");
  HONE_REQUIRE(!recipe.allocate.is_wanted() || first_quantization(recipe) != nullptr, "compress",
               "The recipe has a budget, but no pass that quantizes.");
  check_budget(model, recipe, file_overhead);
  bool is_factored = false;
  for (const PassOptions& options : recipe.passes) {
    make_one(options, recipe)->check(model);
    is_factored = is_factored || std::holds_alternative<LowRankPass>(options);
    HONE_REQUIRE(!is_factored || !std::holds_alternative<StructurePass>(options), "compress",
                 "Remove parts of the model before its products are factored.");
  }
}

// Measures the model as it is in the end, if no pass has done so since it changed.
void measure_last(Result& result, const Context& context) {
  if (!context.quality) return;
  for (auto record = result.passes.rbegin(); record != result.passes.rend(); ++record) {
    if (record->status != Status::Applied) continue;
    if (record->quality) return;
    record->quality = context.quality(result.model);
    return apply_gate(result.recipe.gate, *record);
  }
}

// Chooses formats for the model as it is now, or takes the choice of an interrupted run.
void allocate_formats(Result& result, Context& context) {
  constexpr const char* kSaved = "allocation.json";
  if (const auto saved = context.steps != nullptr ? context.steps->text(kSaved) : std::nullopt) {
    const Json json = parse_json(*saved, kSaved);
    result.recipe = parse_recipe(json.at("recipe").get<std::string>(), kSaved);
    result.allocation = json.at("allocation");
    return;
  }
  AllocatedRecipe chosen = allocate(result.model, result.recipe, context);
  result.recipe = std::move(chosen.recipe);
  result.allocation = {{"groups", std::move(chosen.groups)},
                       {"bytes", chosen.bytes + context.file_overhead},
                       {"predicted_kl", chosen.predicted_kl}};
  if (context.steps == nullptr) return;
  const Json json = {{"recipe", to_toml(result.recipe)}, {"allocation", result.allocation}};
  context.steps->save_text(kSaved, json.dump());
}

}  // namespace

void check_recipe(const model_io::ModelFile& original, const Recipe& recipe, Index file_overhead) {
  check_passes(Model(original), recipe, file_overhead);
}

bool needs_calibration(const Recipe& recipe) {
  return recipe.allocate.is_wanted() ||
         std::ranges::any_of(make_passes(recipe),
                             [](const auto& pass) { return pass->needs_inputs(); });
}

std::vector<std::unique_ptr<Pass>> make_passes(const Recipe& recipe) {
  std::vector<std::unique_ptr<Pass>> passes;
  for (const PassOptions& options : recipe.passes) passes.push_back(make_one(options, recipe));
  return passes;
}

Result compress(const model_io::ModelFile& original, const Recipe& recipe, Context& context,
                bool plan) {
  check_passes(Model(original), recipe, context.file_overhead);
  Result result{.model = Model(original), .recipe = recipe, .allocation = {}};
  warn_of_quantized(original, recipe);
  for (std::size_t i = 0; i < recipe.passes.size(); ++i) {
    throw_if_cancelled(context);
    context.pass = static_cast<Index>(i);
    // Where every pass is kept, one measurement at the end serves all.
    context.measures =
        !plan && (recipe.gate.on_fail != OnFail::Keep || i + 1 == recipe.passes.size());
    if (result.recipe.allocate.is_wanted() &&
        std::holds_alternative<QuantizePass>(recipe.passes[i])) {
      allocate_formats(result, context);
      if (plan) break;
    }
    const std::unique_ptr<Pass> pass = make_one(result.recipe.passes[i], result.recipe);
    result.passes.push_back(pass->apply(result.model, context));
    if (result.passes.back().status == Status::Failed && recipe.gate.on_fail == OnFail::Stop) {
      result.stopped = true;
      break;
    }
  }
  if (!plan) measure_last(result, context);
  return result;
}

}  // namespace hone::compress
