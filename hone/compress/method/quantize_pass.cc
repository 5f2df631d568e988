// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/quantize_pass.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>

#include "hone/compress/gate.h"
#include "hone/compress/method/product_timer.h"
#include "hone/core/check.h"
#include "hone/core/progress.h"
#include "hone/core/trace.h"

namespace hone::compress {
namespace {

using model_io::NamedMatrix;

bool matches_any(const std::vector<std::string>& globs, const std::string& name) {
  return std::ranges::any_of(globs, [&](const std::string& glob) {
    return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
  });
}

// Not quantized yet.
bool is_dense(const NamedMatrix& tensor) { return tensor.matrix.layout == WeightLayout::Dense; }

class RoundPass final : public Pass {
 public:
  RoundPass(const QuantizePass& options, const Recipe& recipe)
      : options_(options), recipe_(recipe) {}

  void check(const Model& model) const override;
  PassRecord apply(Model& model, Context& context) override;

 private:
  // The spec for this tensor; empty if it stays unchanged.
  std::optional<QuantSpec> spec_for(const NamedMatrix& tensor) const;
  void check_globs(const Model& model) const;
  void check_groups(const Model& model) const;
  std::vector<Index> quantize_tensors(Model& model, Context& context, PassRecord& record) const;

  QuantizePass options_;
  Recipe recipe_;
};

std::optional<QuantSpec> RoundPass::spec_for(const NamedMatrix& tensor) const {
  const Role role = role_of(tensor);
  if (role == Role::Other || matches_any(recipe_.keep_float, tensor.name)) return std::nullopt;
  if (!matches_any(options_.apply, tensor.name) || matches_any(options_.except, tensor.name)) {
    return std::nullopt;
  }
  if (role == Role::Linear) return options_.spec;
  const std::string& own = role == Role::Head ? recipe_.head : recipe_.embedding;
  if (own == "float") return std::nullopt;
  return parse_quant_spec(own);
}

void RoundPass::check_globs(const Model& model) const {
  for (const auto* globs : {&options_.apply, &options_.except}) {
    for (const std::string& glob : *globs) {
      const bool used = std::ranges::any_of(model.tensors(), [&](const NamedMatrix& tensor) {
        return ::fnmatch(glob.c_str(), tensor.name.c_str(), 0) == 0;
      });
      HONE_REQUIRE(used, "quantize", concat("The glob \"", glob, "\" matches no tensor."));
    }
  }
}

// One that is larger than the row would be one scale for the row, which is another spec.
void RoundPass::check_groups(const Model& model) const {
  for (const NamedMatrix& tensor : model.tensors()) {
    const auto spec = spec_for(tensor);
    if (!spec || spec->span != ScaleSpan::Group || !is_dense(tensor)) continue;
    HONE_CHECK(spec->group <= tensor.matrix.cols, "quantize",
               concat("groups of at most the ", tensor.matrix.cols, " columns of ", tensor.name),
               to_text(*spec));
  }
}

void RoundPass::check(const Model& model) const {
  check_globs(model);
  check_groups(model);
}

std::vector<Index> RoundPass::quantize_tensors(Model& model, Context& context,
                                               PassRecord& record) const {
  std::vector<Index> changed;
  const auto count = static_cast<Index>(model.tensors().size());
  Progress progress("quantize", count, "tensors");
  std::vector<float> values;
  for (Index at = 0; at < count; ++at) {
    throw_if_cancelled(context);
    const NamedMatrix tensor = model.tensors()[static_cast<std::size_t>(at)];
    const auto spec = spec_for(tensor);
    progress.update(at + 1, tensor.name);
    if (!spec || !is_dense(tensor)) continue;
    const StoredMatrix& before = tensor.matrix;
    HONE_TRACE_ZONE("quantize tensor", {"tensor", tensor.name}, {"rows", before.rows},
                    {"cols", before.cols}, {"bytes", before.stored_bytes()});
    values.resize(static_cast<std::size_t>(before.rows * before.cols));
    decode(before, values);
    QuantMatrix matrix = round_clip(values, before.rows, before.cols, *spec,
                                    {.clip = options_.clip}, context.executor, tensor.name);
    const Index bytes = matrix.bytes();
    record.evidence.push_back(
        {{"tensor", tensor.name},
         {"shape", {before.rows, before.cols}},
         {"spec", to_text(matrix.spec)},
         {"bits_per_weight", matrix.spec.bits_per_weight(before.rows, before.cols)},
         {"sqnr_db", signal_to_noise_db(values, matrix.view())},
         {"bytes_before", before.stored_bytes()},
         {"bytes_after", bytes}});
    record.bytes_before += before.stored_bytes();
    record.bytes_after += bytes;
    model.replace(at, std::move(matrix), options_.act_int8);
    changed.push_back(at);
  }
  return changed;
}

PassRecord RoundPass::apply(Model& model, Context& context) {
  PassRecord record;
  record.family = "quantize";
  record.name = concat("quantize ", to_text(options_.spec), " ", options_.algo,
                       options_.clip ? "" : " noclip");
  HONE_TRACE_ZONE("pass", {"name", record.name});
  auto before = model.snapshot();
  std::vector<Index> changed;
  try {
    changed = quantize_tensors(model, context, record);
  } catch (const Error& error) {
    model.restore(std::move(before));
    if (error.category() != ErrorCategory::InvalidArgument) throw;
    record.status = Status::Failed;
    record.reason = error.what();
    return record;
  }
  if (changed.empty()) {
    record.reason = "no floating-point matrix matched";
    return record;
  }
  time_products(before, model.tensors(), changed, context, record);
  if (context.quality) record.quality = context.quality(model);
  apply_gate(recipe_.gate, record);
  if (record.status != Status::Applied) model.restore(std::move(before));
  return record;
}

}  // namespace

std::unique_ptr<Pass> make_quantize_pass(const QuantizePass& options, const Recipe& recipe) {
  return std::make_unique<RoundPass>(options, recipe);
}

}  // namespace hone::compress
