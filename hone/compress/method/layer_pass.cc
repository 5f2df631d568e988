// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/layer_pass.h"

#include <fnmatch.h>

#include <algorithm>

#include "hone/compress/gate.h"
#include "hone/compress/method/product_timer.h"
#include "hone/compress/method/round.h"
#include "hone/compress/step_store.h"
#include "hone/core/check.h"
#include "hone/core/format/matrix_type.h"
#include "hone/core/log.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"

namespace hone::compress {
namespace {

using model_io::NamedMatrix;

constexpr Index kRest = -1;  // the step of what is in no layer

// What a step adds to the record of its pass.
Json evidence_of(const PassRecord& step) {
  return {{"evidence", step.evidence},
          {"kept", step.kept},
          {"bytes_before", step.bytes_before},
          {"bytes_after", step.bytes_after},
          {"rounded_again", step.rounded_again}};
}

void add_step(const Json& step, PassRecord& record) {
  for (const Json& row : step.at("evidence")) record.evidence.push_back(row);
  for (const Json& row : step.at("kept")) record.kept.push_back(row);
  record.bytes_before += step.at("bytes_before").get<Index>();
  record.bytes_after += step.at("bytes_after").get<Index>();
  record.rounded_again += step.at("rounded_again").get<Index>();
}

std::string step_name(Index pass, Index layer) {
  return concat("pass", pass, layer == kRest ? std::string("-rest") : concat("-layer", layer));
}

}  // namespace

bool matches_any(const std::vector<std::string>& globs, const std::string& name) {
  return std::ranges::any_of(globs, [&](const std::string& glob) {
    return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
  });
}

void check_glob(const Model& model, const std::string& glob, std::string_view op) {
  const bool used = std::ranges::any_of(model.tensors(), [&](const NamedMatrix& tensor) {
    return ::fnmatch(glob.c_str(), tensor.name.c_str(), 0) == 0;
  });
  HONE_REQUIRE(used, op, concat("The glob \"", glob, "\" matches no tensor."));
}

bool Selection::names(const NamedMatrix& tensor) const {
  return role_of(tensor) != Role::Other && !matches_any(keep, tensor.name) &&
         matches_any(apply, tensor.name) && !matches_any(except, tensor.name);
}

void Selection::check(const Model& model, std::string_view op) const {
  for (const std::string& glob : apply) check_glob(model, glob, op);
  for (const std::string& glob : except) check_glob(model, glob, op);
}

bool is_quantized(const NamedMatrix& tensor) { return tensor.matrix.layout != WeightLayout::Dense; }

std::string reason_to_keep_codes(const NamedMatrix& tensor, bool requantize) {
  if (requantize || !is_quantized(tensor)) return {};
  return concat(type_text(tensor.matrix),
                " is quantized already and keeps its codes (--requantize decodes and quantizes it "
                "again)");
}

void check_use(const Model& model, std::string_view op,
               FunctionRef<ReasonToKeep(const NamedMatrix&)> reason_to_keep) {
  Index named = 0;
  std::string example;
  for (const NamedMatrix& tensor : model.tensors()) {
    const ReasonToKeep reason = reason_to_keep(tensor);
    if (!reason) continue;
    if (reason->empty()) return;
    if (++named == 1) example = concat(tensor.name, ": ", *reason);
  }
  HONE_REQUIRE(named > 0, op, "No matrix is named by this pass.");
  fail_argument(op, concat("None of the ", named,
                           " matrices that this pass names would change: ", example, "."));
}

Json removal_statistics(std::string_view method, const Model& before, const Model& after) {
  const Index original = parameters_of(before), remaining = parameters_of(after);
  return {{"method", method},
          {"original_params", original},
          {"remaining_params", remaining},
          {"actual_sparsity", 1 - static_cast<double>(remaining) / static_cast<double>(original)}};
}

Json kept_row(const NamedMatrix& tensor, const std::string& reason) {
  return {{"tensor", tensor.name}, {"type", type_text(tensor.matrix)}, {"reason", reason}};
}

std::vector<Index> matrices_of(const Model& model, Index layer,
                               const model_io::LayerProduct& product) {
  std::vector<Index> found;
  const auto add = [&](const std::string& name) {
    const NamedMatrix* tensor = model.find(model_io::layer_name(layer, name));
    if (tensor != nullptr) found.push_back(tensor - model.tensors().data());
  };
  add(concat(product.name, ".a"));
  for (const auto& [part, rows] : product.parts) add(concat(part, ".weight"));
  return found;
}

std::vector<Index> products_with(const Model& model, Index layer, FunctionRef<bool(Index)> wanted) {
  const auto products = model_io::layer_products(model.architecture(), layer);
  std::vector<Index> found;
  for (std::size_t p = 0; p < products.size(); ++p) {
    if (std::ranges::any_of(matrices_of(model, layer, products[p]), wanted))
      found.push_back(static_cast<Index>(p));
  }
  return found;
}

void for_matrices(const Model& model, Index layer, const model_io::LayerProduct& product,
                  const kernels::Gram* inputs, Executor& executor, VisitMatrices visit) {
  const std::vector<Index> all = matrices_of(model, layer, product);
  const NamedMatrix* const first =
      model.find(model_io::layer_name(layer, concat(product.name, ".a")));
  if (first == nullptr) return visit(inputs, all);
  const std::span<const Index> matrices(all);
  visit(inputs, matrices.first(1));
  std::optional<kernels::Gram> inner;
  if (inputs != nullptr) inner = inputs->projected(values_of(first->matrix), executor);
  visit(inner ? &*inner : nullptr, matrices.subspan(1));
}

LayerInputs LayerPass::observe(const Model& model, Index layer, infer::LayerWalk& walk,
                               Context& context) const {
  const auto products = model_io::layer_products(model.architecture(), layer);
  LayerInputs inputs(products.size());
  const std::vector<Index> wanted = products_to_observe(model, layer);
  for (const Index at : wanted) {
    const auto p = static_cast<std::size_t>(at);
    inputs[p].emplace(products[p].inputs);
  }
  if (wanted.empty()) return inputs;
  walk.observe(layer, model, [&](Index product, const float* x, Index rows, Index cols) {
    auto& gram = inputs[static_cast<std::size_t>(product)];
    if (gram) gram->add(x, rows, cols, context.executor);
  });
  return inputs;
}

// Takes the step from an interrupted run, or makes it.
void LayerPass::change_step(Model& model, Index layer, infer::LayerWalk* walk, Context& context,
                            PassRecord& record) const {
  const std::string name = step_name(context.pass, layer);
  if (context.steps != nullptr) {
    if (const auto saved = context.steps->restore(name, model)) return add_step(*saved, record);
  }
  const Model before = model;
  PassRecord step;
  if (layer == kRest) {
    change_rest(model, context, step);
  } else {
    LayerInputs inputs(model_io::layer_products(model.architecture(), layer).size());
    if (walk != nullptr) inputs = observe(model, layer, *walk, context);
    change_layer(model, layer, inputs, context, step);
  }
  const Json evidence = evidence_of(step);
  add_step(evidence, record);
  if (context.steps == nullptr) return;
  try {
    context.steps->save(name, before, model, layer, evidence);
  } catch (const Error& error) {  // the run itself can go on
    if (error.category() != ErrorCategory::Io) throw;
    log_warning(concat(error.what(), "; finished layers are not kept any more"));
    context.steps = nullptr;
  }
}

void LayerPass::change(Model& model, Context& context, PassRecord& record) {
  const Index layers = model.architecture().layers;
  std::optional<infer::LayerWalk> walk;
  if (needs_inputs()) {
    require_calibration(context, family_);
    walk.emplace(model, context.calibration, infer::Activations::Int8, context.executor);
  }
  begin(model, context);
  Progress progress(family_, layers, "layers");
  for (Index layer = 0; layer < layers; ++layer) {
    throw_if_cancelled(context);
    change_step(model, layer, walk ? &*walk : nullptr, context, record);
    if (walk && layer + 1 < layers) walk->advance(layer, model);
    progress.update(layer + 1);
  }
  walk.reset();
  throw_if_cancelled(context);
  change_step(model, kRest, nullptr, context, record);
}

PassRecord LayerPass::apply(Model& model, Context& context) {
  PassRecord record;
  record.family = family_;
  record.name = name_;
  HONE_TRACE_ZONE("pass", {"name", record.name});
  const Model before = model;
  try {
    change(model, context, record);
    summarize(before, model, record);
  } catch (const Error& error) {
    model = before;
    if (error.category() != ErrorCategory::InvalidArgument) throw;
    record.status = Status::Failed;
    record.reason = error.what();
    return record;
  }
  finish_pass(gate_, changes_speed(), before, model, context, record);
  return record;
}

void finish_pass(const Gate& gate, bool times, const Model& before, Model& model, Context& context,
                 PassRecord& record) {
  const std::vector<Index> changed = model.changed_from(before);
  if (changed.empty() && model.tensors().size() == before.tensors().size()) {
    record.reason = "no matrix that it names could be changed";
    return;
  }
  const std::string name = concat("pass", context.pass, "-outcome.json");
  const auto saved = context.steps != nullptr ? context.steps->text(name) : std::nullopt;
  if (saved) {
    restore_outcome(parse_json(*saved, name), record);
  } else {
    if (times) time_products(before, model, context, record);
    if (context.quality && context.measures) record.quality = context.quality(model);
    apply_gate(gate, record);
    if (context.quality && !context.measures)
      record.reason += "; the quality is measured after the last pass";
    if (context.steps != nullptr) context.steps->save_text(name, outcome_of(record).dump());
  }
  if (record.status != Status::Applied) model = before;
}

}  // namespace hone::compress
