// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/allocate/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "hone/compress/allocate/divergence.h"
#include "hone/compress/method/gptq.h"
#include "hone/compress/method/layer_pass.h"
#include "hone/compress/method/round.h"
#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::compress {
namespace {

using model_io::NamedMatrix;
using FormatPointer = std::shared_ptr<const WeightFormat>;

constexpr Index kMeasuredRows = 64;
constexpr double kProbeBits = 4.5;

// The format whose bits are nearest to the probe's.
const std::string& probe_of(const std::vector<FormatCost>& costs) {
  const auto distance = [](const FormatCost& cost) {
    const FormatPointer format = parse_weight_format(cost.format);
    return std::abs(format->bits_per_weight(1, 256) - kProbeBits);
  };
  return std::ranges::min_element(costs, {}, distance)->format;
}

class SensitivityRun {
 public:
  SensitivityRun(const Model& model, const Recipe& recipe,
                 const std::function<bool(const NamedMatrix&)>& names, Context& context)
      : model_(model),
        recipe_(recipe),
        names_(names),
        context_(context),
        meter_(model, sample_texts(context.calibration, model, recipe.allocate.tokens),
               context.executor) {}

  std::vector<MatrixGroup> run();

 private:
  // A group of a layer with what its costs follow from.
  struct LayerGroup {
    MatrixGroup group;
    Index layer = 0;
    double probe_error = 0;              // of outputs, in the probe's format by plain rounding
    std::vector<double> errors = {};     // of outputs, in each format with feedback
    std::vector<float> importance = {};  // of columns
  };

  std::vector<FormatCost> costs_of(const std::vector<std::string>& tensors) const;
  void add_groups(Index layer);
  void measure_outputs(LayerGroup& own, const kernels::Gram& gram);
  void measure_layer_group(LayerGroup& own);
  MatrixGroup measure_outer(const NamedMatrix& tensor);
  Model with(const std::vector<std::string>& tensors, const std::string& format,
             std::span<const float> importance) const;

  const Model& model_;
  const Recipe& recipe_;
  const std::function<bool(const NamedMatrix&)>& names_;
  Context& context_;
  DivergenceMeter meter_;
  std::vector<LayerGroup> groups_;
};

// The formats that all of these matrices take, each once, with their bytes.
std::vector<FormatCost> SensitivityRun::costs_of(const std::vector<std::string>& tensors) const {
  std::vector<FormatCost> costs;
  std::vector<std::string> seen;
  for (const std::string& name : recipe_.allocate.formats) {
    FormatCost cost{.format = name};
    std::string real;
    bool fits = true, is_same = true;
    for (const std::string& tensor : tensors) {
      const StoredMatrix& matrix = model_.tensor(tensor).matrix;
      const FormatPointer format = shrinking_format(matrix, name);
      if ((fits = format != nullptr); !fits) break;
      real += concat(format->name(), " ");
      is_same = is_same && real.starts_with(format->name() + " ");
      if (is_same) cost.format = format->name();
      cost.bytes += bytes_in(*format, matrix);
    }
    if (!fits || std::ranges::find(seen, real) != seen.end()) continue;
    if (!is_same) cost.format = name;
    seen.push_back(real);
    costs.push_back(std::move(cost));
  }
  return costs;
}

// The model with these matrices rounded to a format.
Model SensitivityRun::with(const std::vector<std::string>& tensors, const std::string& format,
                           std::span<const float> importance) const {
  Model changed = model_;
  for (const std::string& name : tensors) {
    const StoredMatrix& stored = model_.tensor(name).matrix;
    const std::vector<float> values = values_of(stored);
    const WeightMatrix matrix{values, stored.rows, stored.cols, name};
    const FormatPointer own = format_for(shrinking_format(stored, format), matrix);
    const auto scales = fit_matrix(*own, matrix, importance, {}, context_.executor);
    changed.replace(model_.index_of(name), round_matrix(*own, matrix, scales, context_.executor),
                    true);
  }
  return changed;
}

// Predicts the error of the outputs of a group from a sample of its rows.
void SensitivityRun::measure_outputs(LayerGroup& own, const kernels::Gram& gram) {
  const ErrorFeedback feedback(gram, {}, own.group.name, context_.executor);
  own.importance = importance_of(gram);
  own.errors.assign(own.group.costs.size(), 0);
  const std::string& probe = probe_of(own.group.costs);
  for (const std::string& name : own.group.tensors) {
    const StoredMatrix& stored = model_.tensor(name).matrix;
    const Index rows = std::min(kMeasuredRows, stored.rows), cols = stored.cols;
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    for (Index i = 0; i < rows; ++i)
      decode_row(stored, i * stored.rows / rows,
                 std::span(values).subspan(static_cast<std::size_t>(i * cols),
                                           static_cast<std::size_t>(cols)));
    const WeightMatrix matrix{values, rows, cols, name};
    const auto error_of = [&](const EncodedMatrix& encoded) {
      const std::vector<float> decoded = values_of(encoded.stored);
      std::vector<double> errors;
      for (std::size_t i = 0; i < values.size(); ++i)
        errors.push_back(static_cast<double>(values[i]) - static_cast<double>(decoded[i]));
      return feedback.output_error(errors, context_.executor) * static_cast<double>(stored.rows);
    };
    for (std::size_t f = 0; f < own.errors.size(); ++f) {
      const std::string& format = own.group.costs[f].format;
      const FormatPointer codes = format_for(shrinking_format(stored, format), matrix);
      const auto scales = fit_matrix(*codes, matrix, own.importance, {}, context_.executor);
      own.errors[f] +=
          error_of(round_with_feedback(*codes, matrix, scales, feedback, context_.executor));
      if (format == probe)
        own.probe_error += error_of(round_matrix(*codes, matrix, scales, context_.executor));
    }
  }
}

// The groups of a layer, with the errors of their outputs.
void SensitivityRun::add_groups(Index layer) {
  const auto names = [&](Index at) {
    return names_(model_.tensors()[static_cast<std::size_t>(at)]);
  };
  const auto products = model_io::layer_products(model_.architecture(), layer);
  std::map<Index, kernels::Gram> grams;
  for (const Index p : products_with(model_, layer, names))
    grams.emplace(p, products[static_cast<std::size_t>(p)].inputs);
  if (grams.empty()) return;
  meter_.walk().observe(layer, model_, [&](Index product, const float* x, Index rows, Index cols) {
    if (const auto gram = grams.find(product); gram != grams.end())
      gram->second.add(x, rows, cols, context_.executor);
  });
  for (const auto& observed : grams) {
    const model_io::LayerProduct& product = products[static_cast<std::size_t>(observed.first)];
    const auto add = [&](const kernels::Gram* inputs, std::span<const Index> matrices) {
      LayerGroup own{.group = {}, .layer = layer};
      for (const Index at : matrices)
        if (names(at))
          own.group.tensors.push_back(model_.tensors()[static_cast<std::size_t>(at)].name);
      if (own.group.tensors.empty()) return;
      const std::string& first = own.group.tensors.front();
      own.group.name = first.ends_with(".a") ? first : model_io::layer_name(layer, product.name);
      own.group.costs = costs_of(own.group.tensors);
      if (own.group.costs.empty()) return;
      measure_outputs(own, *inputs);
      groups_.push_back(std::move(own));
    };
    for_matrices(model_, layer, product, &observed.second, context_.executor, add);
  }
}

void SensitivityRun::measure_layer_group(LayerGroup& own) {
  const std::string probe = probe_of(own.group.costs);
  const double kl = meter_.of_layer(own.layer, with(own.group.tensors, probe, own.importance));
  const double per_error = own.probe_error > 0 ? kl / own.probe_error : 0;
  for (std::size_t f = 0; f < own.errors.size(); ++f)
    own.group.costs[f].loss = per_error * own.errors[f];
}

// The embedding or the head, which are rounded without feedback.
MatrixGroup SensitivityRun::measure_outer(const NamedMatrix& tensor) {
  MatrixGroup group{.name = tensor.name, .tensors = {tensor.name}};
  group.costs = costs_of(group.tensors);
  for (FormatCost& cost : group.costs) {
    throw_if_cancelled(context_);
    cost.loss = meter_.of_model(with(group.tensors, cost.format, {}));
  }
  return group;
}

std::vector<MatrixGroup> SensitivityRun::run() {
  const Index layers = model_.architecture().layers;
  HONE_TRACE_ZONE("measure sensitivities", {"layers", layers});
  Progress reading("reading the calibration text", layers, "layers");
  for (Index layer = 0; layer < layers; ++layer) {
    throw_if_cancelled(context_);
    meter_.keep_stream();
    add_groups(layer);
    meter_.walk().advance(layer, model_);
    reading.update(layer + 1);
  }
  meter_.keep_logits();
  Progress progress("measuring sensitivities", std::ssize(groups_), "groups");
  std::vector<MatrixGroup> groups;
  for (LayerGroup& own : groups_) {
    throw_if_cancelled(context_);
    measure_layer_group(own);
    groups.push_back(std::move(own.group));
    progress.update(std::ssize(groups));
  }
  for (const NamedMatrix& tensor : model_.tensors()) {
    const Role role = role_of(tensor);
    if ((role != Role::Embedding && role != Role::Head) || !names_(tensor)) continue;
    groups.push_back(measure_outer(tensor));
    if (groups.back().costs.empty()) groups.pop_back();
  }
  return groups;
}

}  // namespace

std::vector<MatrixGroup> measure_sensitivities(const Model& model, const Recipe& recipe,
                                               const std::function<bool(const NamedMatrix&)>& names,
                                               Context& context) {
  require_calibration(context, "allocate");
  return SensitivityRun(model, recipe, names, context).run();
}

}  // namespace hone::compress
