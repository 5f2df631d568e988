// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/prune_pass.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "hone/compress/method/matrix_pass.h"
#include "hone/compress/method/select.h"
#include "hone/core/check.h"
#include "hone/core/format/bitmask.h"
#include "hone/core/format/matrix_type.h"
#include "hone/core/machine/trace.h"

namespace hone::compress {
namespace {

using model_io::NamedMatrix;

std::string name_of_pass(const PrunePass& options) {
  return concat("prune ", name_of(options.saliency), " ", options.sparsity,
                options.global ? " global" : "");
}

Index count_zeros(std::span<const float> values) { return std::ranges::count(values, 0.0f); }

std::vector<float> sizes_of(std::span<const float> values) {
  std::vector<float> sizes(values.size());
  std::ranges::transform(values, sizes.begin(), [](float x) { return std::abs(x); });
  return sizes;
}

// As a file stores the matrix.
Index stored_bytes(const StoredMatrix& matrix, bool masks) {
  const auto masked = masks ? masked_sizes(matrix) : std::nullopt;
  if (!masked) return matrix.stored_bytes();
  const Index codes = matrix.layout == WeightLayout::Canonical ? std::ssize(matrix.quant.codes)
                                                               : std::ssize(matrix.bytes);
  return matrix.stored_bytes() - codes + masked->mask + masked->kept;
}

std::optional<FeedbackOptions> feedback_of(const PrunePass& options) {
  if (options.saliency != Saliency::SparseGpt) return std::nullopt;
  return FeedbackOptions{.act_order = false, .damp = options.damp};
}

class ZeroPass final : public MatrixPass {
 public:
  ZeroPass(const PrunePass& options, const Recipe& recipe)
      : MatrixPass("prune", name_of_pass(options), options, recipe, feedback_of(options)),
        options_(options) {}

  void check(const Model& model) const override;
  bool needs_inputs() const override { return options_.saliency != Saliency::Magnitude; }
  void plan(std::vector<PlannedMatrix>& matrices,
            const model_io::Architecture& architecture) const override;

 protected:
  void begin(const Model& model, Context& context) override;
  ReasonToKeep reason_to_keep(const Model& model, Index at) const override {
    return reason_to_keep(model.tensors()[static_cast<std::size_t>(at)]);
  }
  void change_matrix(Model& model, Index at, const MatrixInputs& inputs, Context& context,
                     PassRecord& record) const override;
  void summarize(const Model& before, const Model& after, PassRecord& record) const override;
  bool changes_speed() const override { return false; }  // products multiply zeros, too

 private:
  bool is_wanted(const NamedMatrix& tensor) const;
  ReasonToKeep reason_to_keep(const NamedMatrix& tensor) const;
  std::vector<float> prune(const WeightMatrix& matrix, const MatrixInputs& inputs,
                           Executor& executor) const;
  void mark_rows(const WeightMatrix& matrix, const kernels::Gram& inputs,
                 std::span<std::uint8_t> kept, Executor& executor) const;
  void mark_global(const WeightMatrix& matrix, std::span<std::uint8_t> kept) const;

  PrunePass options_;
  float threshold_ = 0;                // if global
  std::map<std::string, Index> ties_;  // of each tensor: how many weights of that size go
};

bool ZeroPass::is_wanted(const NamedMatrix& tensor) const {
  if (!selection_.names(tensor)) return false;
  if (role_of(tensor) == Role::Linear) return true;
  return std::ranges::any_of(options_.apply, [&](const std::string& glob) {
    return glob != "*" && matches_any({glob}, tensor.name);
  });
}

ReasonToKeep ZeroPass::reason_to_keep(const NamedMatrix& tensor) const {
  if (!is_wanted(tensor)) return std::nullopt;
  return reason_to_keep_codes(tensor, requantize_);
}

void ZeroPass::check(const Model& model) const {
  selection_.check(model, "prune");
  HONE_REQUIRE(!options_.global || options_.saliency == Saliency::Magnitude, "prune",
               "Only magnitudes are compared across all matrices (allocation = \"global\").");
  check_use(model, "prune", [&](const NamedMatrix& tensor) { return reason_to_keep(tensor); });
}

void ZeroPass::plan(std::vector<PlannedMatrix>& matrices, const model_io::Architecture&) const {
  for (PlannedMatrix& planned : matrices) {
    if (reason_to_keep(*planned.tensor) == "")
      planned.kept = std::min(planned.kept, 1 - options_.sparsity);
  }
}

// Finds the size below which weights of all matrices go, and how ties are shared among them.
void ZeroPass::begin(const Model& model, Context& context) {
  if (!options_.global) return;
  HONE_TRACE_ZONE("find threshold");
  const auto visit_one = [&](const NamedMatrix& tensor, ValueSink sink) {
    throw_if_cancelled(context);
    const std::vector<float> values = values_of(tensor.matrix);
    check_finite({values, tensor.matrix.rows, tensor.matrix.cols, tensor.name});
    sink(sizes_of(values));
  };
  std::vector<const NamedMatrix*> named;
  Index all = 0;
  for (const NamedMatrix& tensor : model.tensors()) {
    if (reason_to_keep(tensor) != "") continue;
    named.push_back(&tensor);
    all += tensor.matrix.rows * tensor.matrix.cols;
  }
  const Index count = std::llround(options_.sparsity * static_cast<double>(all));
  Threshold threshold = find_threshold(count, [&](ValueSink sink) {
    for (const NamedMatrix* tensor : named) visit_one(*tensor, sink);
  });
  threshold_ = threshold.value;
  for (const NamedMatrix* tensor : named) {
    visit_one(*tensor, [&](std::span<const float> sizes) {
      const Index equal = std::min<Index>(std::ranges::count(sizes, threshold_), threshold.ties);
      ties_[tensor->name] = equal;
      threshold.ties -= equal;
    });
  }
}

void ZeroPass::mark_global(const WeightMatrix& matrix, std::span<std::uint8_t> kept) const {
  Index ties = ties_.at(std::string(matrix.name));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const float size = std::abs(matrix.values[i]);
    const bool goes = size < threshold_ || (size == threshold_ && ties-- > 0);
    kept[i] = goes ? 0 : 1;
  }
}

// By |w| ‖x‖ among the weights of a row.
void ZeroPass::mark_rows(const WeightMatrix& matrix, const kernels::Gram& inputs,
                         std::span<std::uint8_t> kept, Executor& executor) const {
  std::vector<float> norms;
  for (Index col = 0; col < matrix.cols; ++col)
    norms.push_back(static_cast<float>(std::sqrt(inputs(col, col))));
  const Index count = std::llround(options_.sparsity * static_cast<double>(matrix.cols));
  executor.parallel_for(matrix.rows, 16, [&](Index begin, Index end, int) {
    std::vector<float> scores(norms.size());
    for (Index row = begin; row < end; ++row) {
      const std::span<const float> weights = matrix.row(row);
      for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = std::abs(weights[i]) * norms[i];
      mark_largest(scores, count,
                   kept.subspan(static_cast<std::size_t>(row * matrix.cols), scores.size()));
    }
  });
}

std::vector<float> ZeroPass::prune(const WeightMatrix& matrix, const MatrixInputs& inputs,
                                   Executor& executor) const {
  if (inputs.feedback != nullptr)
    return prune_with_feedback(matrix, options_.sparsity, *inputs.feedback, executor);
  std::vector<std::uint8_t> kept(matrix.values.size());
  if (options_.global) {
    mark_global(matrix, kept);
  } else if (options_.saliency == Saliency::Wanda && inputs.gram != nullptr) {
    mark_rows(matrix, *inputs.gram, kept, executor);
  } else {
    const auto count = std::llround(options_.sparsity * static_cast<double>(kept.size()));
    mark_largest(sizes_of(matrix.values), count, kept);
  }
  std::vector<float> out(matrix.values.begin(), matrix.values.end());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = kept[i] != 0 ? out[i] : 0;
  return out;
}

void ZeroPass::change_matrix(Model& model, Index at, const MatrixInputs& inputs, Context& context,
                             PassRecord& record) const {
  const NamedMatrix tensor = model.tensors()[static_cast<std::size_t>(at)];
  const StoredMatrix& before = tensor.matrix;
  HONE_TRACE_ZONE("prune tensor", {"tensor", tensor.name}, {"rows", before.rows},
                  {"cols", before.cols});
  const std::vector<float> values = values_of(before);
  const WeightMatrix matrix{values, before.rows, before.cols, tensor.name};
  check_finite(matrix);
  const std::vector<float> pruned = prune(matrix, inputs, context.executor);
  const WeightMatrix result{pruned, before.rows, before.cols, tensor.name};
  EncodedMatrix encoded = store_like(before, result, context.executor);
  const Index zeros = count_zeros(values_of(encoded.stored)), all = std::ssize(values);
  Json evidence = {
      {"tensor", tensor.name},
      {"shape", {before.rows, before.cols}},
      {"method", name_of(inputs.gram != nullptr ? options_.saliency : Saliency::Magnitude)},
      {"target_sparsity", options_.sparsity},
      {"actual_sparsity", static_cast<double>(zeros) / static_cast<double>(all)},
      {"original_params", all},
      {"remaining_params", all - zeros},
      {"sqnr_db", signal_to_noise_db(matrix, encoded.stored)}};
  if (inputs.feedback != nullptr)
    evidence["output_error"] =
        relative_output_error(matrix, encoded.stored, *inputs.feedback, context.executor);
  const Index bytes = stored_bytes(encoded.stored, context.masks);
  evidence["bytes_before"] = before.stored_bytes();
  evidence["bytes_after"] = bytes;
  record.evidence.push_back(std::move(evidence));
  record.rounded_again += is_quantized(tensor) ? 1 : 0;
  record.bytes_before += before.stored_bytes();
  record.bytes_after += bytes;
  model.replace(at, std::move(encoded), before.act_int8);
}

void ZeroPass::summarize(const Model&, const Model&, PassRecord& record) const {
  Index original = 0, remaining = 0;
  for (const Json& row : record.evidence) {
    original += row.at("original_params").get<Index>();
    remaining += row.at("remaining_params").get<Index>();
  }
  record.statistics = {
      {"method", name_of(options_.saliency)},
      {"target_sparsity", options_.sparsity},
      {"actual_sparsity",
       original > 0 ? 1 - static_cast<double>(remaining) / static_cast<double>(original) : 0.0},
      {"original_params", original},
      {"remaining_params", remaining}};
}

}  // namespace

std::unique_ptr<Pass> make_pass(const PrunePass& options, const Recipe& recipe) {
  return std::make_unique<ZeroPass>(options, recipe);
}

}  // namespace hone::compress
