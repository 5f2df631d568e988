// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/quantize_pass.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>

#include "hone/compress/gate.h"
#include "hone/compress/method/product_timer.h"
#include "hone/core/check.h"
#include "hone/core/format/matrix_type.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"
#include "hone/core/text_format.h"

namespace hone::compress {
namespace {

using model_io::NamedMatrix;

bool matches_any(const std::vector<std::string>& globs, const std::string& name) {
  return std::ranges::any_of(globs, [&](const std::string& glob) {
    return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
  });
}

bool is_quantized(const NamedMatrix& tensor) { return tensor.matrix.layout != WeightLayout::Dense; }

double bits_of(const StoredMatrix& matrix) {
  return 8 * static_cast<double>(matrix.stored_bytes()) /
         static_cast<double>(matrix.rows * matrix.cols);
}

bool would_shrink(const StoredMatrix& matrix, const QuantSpec& spec) {
  return spec.bits_per_weight(matrix.rows, matrix.cols) < bits_of(matrix);
}

std::string say_bits(double bits) { return concat(fixed(bits, 2), " bits per weight"); }

Json kept_row(const NamedMatrix& tensor, const QuantSpec& spec, double bits) {
  const std::string type = type_text(tensor.matrix);
  return {{"tensor", tensor.name},
          {"type", type},
          {"spec", to_text(spec)},
          {"reason", concat(type, " has ", say_bits(bits_of(tensor.matrix)), ", ", to_text(spec),
                            " would have ", fixed(bits, 2))}};
}

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
  void check_use(const Model& model) const;
  bool quantize_tensor(Model& model, Index at, Context& context, PassRecord& record) const;
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
    if (!spec || spec->span != ScaleSpan::Group) continue;
    HONE_CHECK(spec->group <= tensor.matrix.cols, "quantize",
               concat("groups of at most the ", tensor.matrix.cols, " columns of ", tensor.name),
               to_text(*spec));
  }
}

// A pass that would change nothing is a mistake, which is better said before the work.
void RoundPass::check_use(const Model& model) const {
  Index named = 0;
  std::string example;
  for (const NamedMatrix& tensor : model.tensors()) {
    const auto spec = spec_for(tensor);
    if (!spec) continue;
    if (would_shrink(tensor.matrix, *spec)) return;
    if (++named > 1) continue;
    example = kept_row(tensor, *spec, spec->bits_per_weight(tensor.matrix.rows, tensor.matrix.cols))
                  .at("reason");
  }
  const std::string op = concat("quantize ", to_text(options_.spec));
  HONE_REQUIRE(named > 0, op, "No matrix is named by this pass.");
  fail_argument(op, concat("None of the ", named,
                           " matrices that this pass names would become smaller: ", example, "."));
}

void RoundPass::check(const Model& model) const {
  check_globs(model);
  check_groups(model);
  check_use(model);
}

bool RoundPass::quantize_tensor(Model& model, Index at, Context& context,
                                PassRecord& record) const {
  const NamedMatrix tensor = model.tensors()[static_cast<std::size_t>(at)];
  const auto spec = spec_for(tensor);
  if (!spec || !model.is_original(at)) return false;
  const StoredMatrix& before = tensor.matrix;
  HONE_TRACE_ZONE("quantize tensor", {"tensor", tensor.name}, {"rows", before.rows},
                  {"cols", before.cols}, {"bytes", before.stored_bytes()});
  if (!would_shrink(before, *spec)) {
    record.kept.push_back(kept_row(tensor, *spec, spec->bits_per_weight(before.rows, before.cols)));
    return false;
  }
  std::vector<float> values(static_cast<std::size_t>(before.rows * before.cols));
  decode(before, values);
  QuantMatrix matrix = round_clip(values, before.rows, before.cols, *spec, {.clip = options_.clip},
                                  context.executor, tensor.name);
  const double bits = matrix.spec.bits_per_weight(before.rows, before.cols);
  if (!would_shrink(before, matrix.spec)) {  // its scales did not fit into f16
    record.kept.push_back(kept_row(tensor, matrix.spec, bits));
    return false;
  }
  const Index bytes = matrix.bytes();
  record.evidence.push_back({{"tensor", tensor.name},
                             {"shape", {before.rows, before.cols}},
                             {"from", type_text(before)},
                             {"spec", to_text(matrix.spec)},
                             {"bits_per_weight", bits},
                             {"sqnr_db", signal_to_noise_db(values, matrix.view())},
                             {"bytes_before", before.stored_bytes()},
                             {"bytes_after", bytes}});
  record.rounded_again += is_quantized(tensor) ? 1 : 0;
  record.bytes_before += before.stored_bytes();
  record.bytes_after += bytes;
  model.replace(at, std::move(matrix), options_.act_int8);
  return true;
}

std::vector<Index> RoundPass::quantize_tensors(Model& model, Context& context,
                                               PassRecord& record) const {
  std::vector<Index> changed;
  const auto count = static_cast<Index>(model.tensors().size());
  Progress progress("quantize", count, "tensors");
  for (Index at = 0; at < count; ++at) {
    throw_if_cancelled(context);
    progress.update(at + 1, model.tensors()[static_cast<std::size_t>(at)].name);
    if (quantize_tensor(model, at, context, record)) changed.push_back(at);
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
    record.reason = "passes before it changed every matrix that it would make smaller";
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
