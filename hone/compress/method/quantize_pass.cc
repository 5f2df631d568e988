// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/quantize_pass.h"

#include <algorithm>
#include <optional>

#include "hone/compress/method/matrix_pass.h"
#include "hone/core/check.h"
#include "hone/core/format/matrix_type.h"
#include "hone/core/machine/trace.h"
#include "hone/core/text_format.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::compress {
namespace {

using model_io::NamedMatrix;

using FormatPointer = std::shared_ptr<const WeightFormat>;

Selection selection_of(const QuantizePass& options, const Recipe& recipe) {
  return {recipe.keep_float, options.apply, options.except};
}

std::string say_bits(double bits) { return concat(fixed(bits, 2), " bits per weight"); }

std::string reason_of_size(const NamedMatrix& tensor, const WeightFormat& format) {
  return concat(type_text(tensor.matrix), " has ", say_bits(bits_of(tensor.matrix)), ", ",
                format.name(), " would have ",
                fixed(format.bits_per_weight(tensor.matrix.rows, tensor.matrix.cols), 2));
}

std::string name_of_pass(const QuantizePass& options) {
  return concat(
      "quantize ",
      options.formats.empty() ? parse_weight_format(options.spec)->name() : "to chosen formats",
      " ", name_of(options.rounding), options.clip ? "" : " noclip",
      options.percentile > 0 ? concat(" percentile ", options.percentile) : std::string());
}

std::optional<FeedbackOptions> feedback_of(const QuantizePass& options) {
  if (options.rounding != Rounding::Gptq) return std::nullopt;
  return FeedbackOptions{.act_order = options.act_order, .damp = options.damp};
}

class RoundPass final : public MatrixPass {
 public:
  RoundPass(const QuantizePass& options, const Recipe& recipe)
      : MatrixPass("quantize", name_of_pass(options), options, recipe, feedback_of(options)),
        options_(options),
        embedding_(recipe.embedding),
        head_(recipe.head),
        format_(parse_weight_format(options.spec)) {}

  void check(const Model& model) const override;
  bool needs_inputs() const override { return options_.rounding != Rounding::Rtn; }
  void plan(std::vector<PlannedMatrix>& matrices,
            const model_io::Architecture& architecture) const override;

 protected:
  ReasonToKeep reason_to_keep(const Model& model, Index at) const override;
  void change_matrix(Model& model, Index at, const MatrixInputs& inputs, Context& context,
                     PassRecord& record) const override;

 private:
  std::string format_by_name(const std::string& tensor) const;
  // The format for this tensor; null if it stays unchanged.
  FormatPointer format_of(const NamedMatrix& tensor) const;
  // As MatrixPass's, for a tensor that no pass has quantized.
  ReasonToKeep reason_to_keep(const NamedMatrix& tensor) const;
  void check_globs(const Model& model) const;
  void check_groups(const Model& model) const;
  EncodedMatrix encode(const WeightFormat& format, const WeightMatrix& matrix,
                       const MatrixInputs& inputs, Context& context, Json& evidence) const;

  QuantizePass options_;
  std::string embedding_, head_;  // their formats in the recipe
  FormatPointer format_;
};

// The format of the last entry of `formats` that matches; empty if none does.
std::string RoundPass::format_by_name(const std::string& tensor) const {
  std::string found;
  for (const std::string& entry : options_.formats) {
    const std::size_t equals = entry.find('=');
    if (matches_any({entry.substr(0, equals)}, tensor)) found = entry.substr(equals + 1);
  }
  return found;
}

FormatPointer RoundPass::format_of(const NamedMatrix& tensor) const {
  if (!selection_.names(tensor)) return nullptr;
  const Role role = role_of(tensor);
  FormatPointer format = format_;
  const std::string chosen = format_by_name(tensor.name);
  if (!chosen.empty()) {
    format = parse_weight_format(chosen);
  } else if (role != Role::Linear) {
    const std::string& own = role == Role::Head ? head_ : embedding_;
    if (own == "float") return nullptr;
    const bool is_gguf = find_gguf_format(format_->name()) != nullptr;
    format = parse_weight_format(own != "auto" ? own : is_gguf ? "q8_0" : "int8:row");
  }
  return format_for_columns(format, tensor.matrix.cols);
}

ReasonToKeep RoundPass::reason_to_keep(const NamedMatrix& tensor) const {
  const FormatPointer format = format_of(tensor);
  if (format == nullptr) return std::nullopt;
  if (std::string reason = reason_to_keep_codes(tensor, requantize_); !reason.empty())
    return reason;
  if (!format->takes(tensor.matrix.cols))
    return concat(format->name(), " does not take ", tensor.matrix.cols, " columns");
  return would_shrink(tensor.matrix, *format) ? std::string() : reason_of_size(tensor, *format);
}

ReasonToKeep RoundPass::reason_to_keep(const Model& model, Index at) const {
  if (model.is_rounded(at)) return std::nullopt;  // by a pass before
  return reason_to_keep(model.tensors()[static_cast<std::size_t>(at)]);
}

void RoundPass::check_globs(const Model& model) const {
  selection_.check(model, "quantize");
  for (const std::string& entry : options_.formats) {
    const std::string glob = entry.substr(0, entry.find('='));
    if (!glob.ends_with("_proj.a")) check_glob(model, glob, "quantize");  // of a pass before
  }
}

// A group that is larger than the row would be one scale for the row, which is another spec.
void RoundPass::check_groups(const Model& model) const {
  for (const NamedMatrix& tensor : model.tensors()) {
    const FormatPointer format = format_of(tensor);
    if (format == nullptr || find_gguf_format(format->name()) != nullptr) continue;
    HONE_CHECK(format->takes(tensor.matrix.cols), "quantize",
               concat("groups of at most the ", tensor.matrix.cols, " columns of ", tensor.name),
               format->name());
  }
}

void RoundPass::check(const Model& model) const {
  check_globs(model);
  check_groups(model);
  check_use(model, concat("quantize ", format_->name()),
            [&](const NamedMatrix& tensor) { return reason_to_keep(tensor); });
}

void RoundPass::plan(std::vector<PlannedMatrix>& matrices, const model_io::Architecture&) const {
  for (PlannedMatrix& planned : matrices) {
    FormatPointer format = format_of(*planned.tensor);
    if (format == nullptr || (is_quantized(*planned.tensor) && !requantize_)) continue;
    format = format_for_columns(format, planned.cols);
    if (format->takes(planned.cols))
      planned.bits = std::min(planned.bits, format->bits_per_weight(planned.rows, planned.cols));
  }
}

EncodedMatrix RoundPass::encode(const WeightFormat& format, const WeightMatrix& matrix,
                                const MatrixInputs& inputs, Context& context,
                                Json& evidence) const {
  Encoding encoding =
      encode_matrix(format, matrix, {.clip = options_.clip, .percentile = options_.percentile},
                    inputs.gram, inputs.feedback, context.executor);
  EncodedMatrix& rounded = encoding.matrix;
  if (inputs.feedback != nullptr) {
    evidence["output_error_rounded"] = encoding.rounded_error;
    evidence["output_error"] = encoding.best_error;
    evidence["damping"] = inputs.feedback->damping();
  }
  const double bits = format.bits_per_weight(matrix.rows, matrix.cols);
  const double sqnr = signal_to_noise_db(matrix, rounded.stored);
  constexpr double kDbPerBit = 6.020599913279624;  // 10 log10 4: the bound of a Gaussian source
  evidence["algorithm"] = encoding.algorithm;
  evidence["bits_per_weight"] = bits;
  evidence["sqnr_db"] = sqnr;
  evidence["rate_distortion_db"] = kDbPerBit * bits;
  evidence["code_entropy"] = code_entropy(format, matrix, encoding.scales, rounded.stored);
  return std::move(rounded);
}

void RoundPass::change_matrix(Model& model, Index at, const MatrixInputs& inputs, Context& context,
                              PassRecord& record) const {
  const NamedMatrix tensor = model.tensors()[static_cast<std::size_t>(at)];
  FormatPointer format = format_of(tensor);
  const StoredMatrix& before = tensor.matrix;
  HONE_TRACE_ZONE("quantize tensor", {"tensor", tensor.name}, {"rows", before.rows},
                  {"cols", before.cols}, {"bytes", before.stored_bytes()});
  const std::vector<float> values = values_of(before);
  const WeightMatrix matrix{values, before.rows, before.cols, tensor.name};
  format = format_for(format, matrix);
  if (!would_shrink(before, *format)) {  // its scales did not fit into f16
    record.kept.push_back(kept_row(tensor, reason_of_size(tensor, *format)));
    return;
  }
  Json evidence = {{"tensor", tensor.name},
                   {"shape", {before.rows, before.cols}},
                   {"from", type_text(before)},
                   {"spec", format->name()}};
  EncodedMatrix encoded = encode(*format, matrix, inputs, context, evidence);
  const Index bytes = encoded.stored.stored_bytes();
  evidence["bytes_before"] = before.stored_bytes();
  evidence["bytes_after"] = bytes;
  record.evidence.push_back(std::move(evidence));
  record.rounded_again += is_quantized(tensor) ? 1 : 0;
  record.bytes_before += before.stored_bytes();
  record.bytes_after += bytes;
  encoded.is_rounded = true;
  model.replace(at, std::move(encoded), options_.act_int8);
}

}  // namespace

bool is_changed(const QuantizePass& options, const Recipe& recipe, const NamedMatrix& tensor) {
  return selection_of(options, recipe).names(tensor) &&
         (recipe.requantize || !is_quantized(tensor));
}

std::unique_ptr<Pass> make_pass(const QuantizePass& options, const Recipe& recipe) {
  return std::make_unique<RoundPass>(options, recipe);
}

}  // namespace hone::compress
