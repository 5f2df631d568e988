// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/quantize_pass.h"

#include <algorithm>
#include <optional>

#include "hone/compress/method/gptq.h"
#include "hone/compress/method/layer_pass.h"
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
      "quantize ", parse_weight_format(options.spec)->name(), " ", name_of(options.rounding),
      options.clip ? "" : " noclip",
      options.percentile > 0 ? concat(" percentile ", options.percentile) : std::string());
}

class RoundPass final : public LayerPass {
 public:
  RoundPass(const QuantizePass& options, const Recipe& recipe)
      : LayerPass("quantize", name_of_pass(options), recipe.gate),
        options_(options),
        recipe_(recipe),
        selection_(selection_of(options, recipe)),
        format_(parse_weight_format(options.spec)) {}

  void check(const Model& model) const override;
  bool needs_inputs() const override { return options_.rounding != Rounding::Rtn; }
  double multiplications(const model_io::LayerProduct& product) const override;
  void plan(std::vector<PlannedMatrix>& matrices,
            const model_io::Architecture& architecture) const override;

 protected:
  std::vector<Index> products_to_observe(const Model& model, Index layer) const override;
  void change_layer(Model& model, Index layer, LayerInputs& inputs, Context& context,
                    PassRecord& record) const override;
  void change_rest(Model& model, Context& context, PassRecord& record) const override;

 private:
  // The inputs of one product of a layer, for the matrices that share them.
  struct Inputs {
    const kernels::Gram* gram = nullptr;
    const ErrorFeedback* feedback = nullptr;
  };

  std::string format_by_name(const std::string& tensor) const;
  // The format for this tensor; null if it stays unchanged.
  FormatPointer format_of(const NamedMatrix& tensor) const;
  // Why a tensor that the pass names keeps its type; empty if it does not.
  std::string reason_to_keep(const NamedMatrix& tensor, const WeightFormat& format) const;
  void check_globs(const Model& model) const;
  void check_groups(const Model& model) const;
  void check_use(const Model& model) const;
  // Whether tensor `at` is to be quantized now.
  bool is_wanted(const Model& model, Index at) const;
  void quantize_tensor(Model& model, Index at, const Inputs& inputs, Context& context,
                       PassRecord& record) const;
  EncodedMatrix encode(const WeightFormat& format, const WeightMatrix& matrix, const Inputs& inputs,
                       Context& context, Json& evidence) const;

  QuantizePass options_;
  Recipe recipe_;
  Selection selection_;
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
    const std::string& own = role == Role::Head ? recipe_.head : recipe_.embedding;
    if (own == "float") return nullptr;
    const bool is_gguf = find_gguf_format(format_->name()) != nullptr;
    format = parse_weight_format(own != "auto" ? own : is_gguf ? "q8_0" : "int8:row");
  }
  return format_for_columns(format, tensor.matrix.cols);
}

std::string RoundPass::reason_to_keep(const NamedMatrix& tensor, const WeightFormat& format) const {
  if (is_quantized(tensor) && !recipe_.requantize)
    return concat(type_text(tensor.matrix), " ", kKeepsCodes);
  if (!format.takes(tensor.matrix.cols))
    return concat(format.name(), " does not take ", tensor.matrix.cols, " columns");
  return would_shrink(tensor.matrix, format) ? std::string() : reason_of_size(tensor, format);
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

// A pass that would change nothing is a mistake, which is better said before the work.
void RoundPass::check_use(const Model& model) const {
  Index named = 0;
  std::string example;
  for (const NamedMatrix& tensor : model.tensors()) {
    const FormatPointer format = format_of(tensor);
    if (format == nullptr) continue;
    const std::string reason = reason_to_keep(tensor, *format);
    if (reason.empty()) return;
    if (++named == 1) example = concat(tensor.name, ": ", reason);
  }
  const std::string op = concat("quantize ", format_->name());
  HONE_REQUIRE(named > 0, op, "No matrix is named by this pass.");
  fail_argument(op, concat("None of the ", named,
                           " matrices that this pass names would change: ", example, "."));
}

void RoundPass::check(const Model& model) const {
  check_globs(model);
  check_groups(model);
  check_use(model);
}

double RoundPass::multiplications(const model_io::LayerProduct& product) const {
  const auto k = static_cast<double>(product.inputs), n = static_cast<double>(product.outputs);
  return options_.rounding == Rounding::Gptq ? k * k * (0.5 * n + 0.5 * k) : 0;
}

void RoundPass::plan(std::vector<PlannedMatrix>& matrices, const model_io::Architecture&) const {
  for (PlannedMatrix& planned : matrices) {
    FormatPointer format = format_of(*planned.tensor);
    if (format == nullptr || (is_quantized(*planned.tensor) && !recipe_.requantize)) continue;
    format = format_for_columns(format, planned.cols);
    if (format->takes(planned.cols))
      planned.bits = std::min(planned.bits, format->bits_per_weight(planned.rows, planned.cols));
  }
}

// With error feedback, unless plain rounding has the smaller error of outputs.
EncodedMatrix RoundPass::encode(const WeightFormat& format, const WeightMatrix& matrix,
                                const Inputs& inputs, Context& context, Json& evidence) const {
  const std::vector<float> importance =
      inputs.gram != nullptr ? importance_of(*inputs.gram) : std::vector<float>();
  const std::vector<BlockScales> scales =
      fit_matrix(format, matrix, importance,
                 {.clip = options_.clip, .percentile = options_.percentile}, context.executor);
  EncodedMatrix rounded = round_matrix(format, matrix, scales, context.executor);
  std::string algorithm = inputs.gram != nullptr ? "importance" : "rtn";
  if (inputs.feedback != nullptr) {
    EncodedMatrix fed =
        round_with_feedback(format, matrix, scales, *inputs.feedback, context.executor);
    const auto error_of = [&](const EncodedMatrix& one) {
      return relative_output_error(matrix, one.stored, *inputs.feedback, context.executor);
    };
    const double plain = error_of(rounded), better = error_of(fed);
    evidence["output_error_rounded"] = plain;
    evidence["output_error"] = std::min(plain, better);
    evidence["damping"] = inputs.feedback->damping();
    if (better < plain) {
      rounded = std::move(fed);
      algorithm = "gptq";
    }
  }
  const double bits = format.bits_per_weight(matrix.rows, matrix.cols);
  const double sqnr = signal_to_noise_db(matrix, rounded.stored);
  constexpr double kDbPerBit = 6.020599913279624;  // 10 log10 4: the bound of a Gaussian source
  evidence["algorithm"] = algorithm;
  evidence["bits_per_weight"] = bits;
  evidence["sqnr_db"] = sqnr;
  evidence["rate_distortion_db"] = kDbPerBit * bits;
  evidence["code_entropy"] = code_entropy(format, matrix, scales, rounded.stored);
  return rounded;
}

bool RoundPass::is_wanted(const Model& model, Index at) const {
  const NamedMatrix& tensor = model.tensors()[static_cast<std::size_t>(at)];
  return !model.is_rounded(at) && format_of(tensor) != nullptr;
}

void RoundPass::quantize_tensor(Model& model, Index at, const Inputs& inputs, Context& context,
                                PassRecord& record) const {
  const NamedMatrix tensor = model.tensors()[static_cast<std::size_t>(at)];
  if (!is_wanted(model, at)) return;
  FormatPointer format = format_of(tensor);
  const StoredMatrix& before = tensor.matrix;
  HONE_TRACE_ZONE("quantize tensor", {"tensor", tensor.name}, {"rows", before.rows},
                  {"cols", before.cols}, {"bytes", before.stored_bytes()});
  if (const std::string reason = reason_to_keep(tensor, *format); !reason.empty()) {
    record.kept.push_back(kept_row(tensor, reason));
    return;
  }
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

std::vector<Index> RoundPass::products_to_observe(const Model& model, Index layer) const {
  return products_with(model, layer, [&](Index at) {
    const NamedMatrix& tensor = model.tensors()[static_cast<std::size_t>(at)];
    return is_wanted(model, at) && reason_to_keep(tensor, *format_of(tensor)).empty();
  });
}

void RoundPass::change_layer(Model& model, Index layer, LayerInputs& inputs, Context& context,
                             PassRecord& record) const {
  const auto products = model_io::layer_products(model.architecture(), layer);
  for (std::size_t p = 0; p < products.size(); ++p) {
    const auto quantize = [&](const kernels::Gram* gram, std::span<const Index> matrices) {
      Inputs own{.gram = gram};
      std::optional<ErrorFeedback> feedback;
      if (gram != nullptr && options_.rounding == Rounding::Gptq) {
        feedback.emplace(*gram,
                         FeedbackOptions{.act_order = options_.act_order, .damp = options_.damp},
                         model_io::layer_name(layer, products[p].name), context.executor);
        own.feedback = &*feedback;
      }
      for (const Index at : matrices) {
        throw_if_cancelled(context);
        quantize_tensor(model, at, own, context, record);
      }
    };
    for_matrices(model, layer, products[p], inputs[p] ? &*inputs[p] : nullptr, context.executor,
                 quantize);
    inputs[p].reset();
  }
}

void RoundPass::change_rest(Model& model, Context& context, PassRecord& record) const {
  for (Index at = 0; at < std::ssize(model.tensors()); ++at) {
    throw_if_cancelled(context);
    if (role_of(model.tensors()[static_cast<std::size_t>(at)]) != Role::Linear)
      quantize_tensor(model, at, {}, context, record);
  }
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
