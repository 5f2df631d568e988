// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/quantize_pass.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>

#include "hone/compress/gate.h"
#include "hone/compress/method/gptq.h"
#include "hone/compress/method/product_timer.h"
#include "hone/core/check.h"
#include "hone/core/format/matrix_type.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"
#include "hone/core/text_format.h"
#include "hone/infer/capture.h"
#include "hone/kernels/linalg/gram.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::compress {
namespace {

using model_io::NamedMatrix;

bool matches_any(const std::vector<std::string>& globs, const std::string& name) {
  return std::ranges::any_of(globs, [&](const std::string& glob) {
    return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
  });
}

bool is_quantized(const NamedMatrix& tensor) { return tensor.matrix.layout != WeightLayout::Dense; }

using FormatPointer = std::shared_ptr<const WeightFormat>;

bool is_named(const QuantizePass& options, const Recipe& recipe, const NamedMatrix& tensor) {
  return role_of(tensor) != Role::Other && !matches_any(recipe.keep_float, tensor.name) &&
         matches_any(options.apply, tensor.name) && !matches_any(options.except, tensor.name);
}

std::string say_bits(double bits) { return concat(fixed(bits, 2), " bits per weight"); }

std::string reason_of_size(const NamedMatrix& tensor, const WeightFormat& format) {
  return concat(type_text(tensor.matrix), " has ", say_bits(bits_of(tensor.matrix)), ", ",
                format.name(), " would have ",
                fixed(format.bits_per_weight(tensor.matrix.rows, tensor.matrix.cols), 2));
}

Json kept_row(const NamedMatrix& tensor, const WeightFormat& format, const std::string& reason) {
  return {{"tensor", tensor.name},
          {"type", type_text(tensor.matrix)},
          {"spec", format.name()},
          {"reason", reason}};
}

constexpr std::string_view kKeepsCodes =
    "is quantized already and keeps its codes (--requantize decodes and quantizes it again)";

class RoundPass final : public Pass {
 public:
  RoundPass(const QuantizePass& options, const Recipe& recipe)
      : options_(options), recipe_(recipe), format_(parse_weight_format(options.spec)) {}

  void check(const Model& model) const override;
  PassRecord apply(Model& model, Context& context) override;

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
  bool quantize_tensor(Model& model, Index at, const Inputs& inputs, Context& context,
                       PassRecord& record) const;
  EncodedMatrix encode(const WeightFormat& format, const WeightMatrix& matrix, const Inputs& inputs,
                       Context& context, Json& evidence) const;
  void quantize_layer(Model& model, Index layer, infer::LayerWalk& walk, Context& context,
                      PassRecord& record, std::vector<Index>& changed) const;
  std::vector<Index> quantize_tensors(Model& model, Context& context, PassRecord& record) const;

  QuantizePass options_;
  Recipe recipe_;
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
  if (!is_named(options_, recipe_, tensor)) return nullptr;
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
  std::vector<std::string> named;
  for (const std::string& entry : options_.formats)
    named.push_back(entry.substr(0, entry.find('=')));
  for (const std::vector<std::string>* globs :
       std::initializer_list<const std::vector<std::string>*>{&options_.apply, &options_.except,
                                                              &named}) {
    for (const std::string& glob : *globs) {
      const bool used = std::ranges::any_of(model.tensors(), [&](const NamedMatrix& tensor) {
        return ::fnmatch(glob.c_str(), tensor.name.c_str(), 0) == 0;
      });
      HONE_REQUIRE(used, "quantize", concat("The glob \"", glob, "\" matches no tensor."));
    }
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

// With error feedback, unless plain rounding has the smaller error of outputs.
EncodedMatrix RoundPass::encode(const WeightFormat& format, const WeightMatrix& matrix,
                                const Inputs& inputs, Context& context, Json& evidence) const {
  const std::vector<float> importance =
      inputs.gram != nullptr ? importance_of(*inputs.gram) : std::vector<float>();
  const std::vector<BlockScales> scales =
      fit_matrix(format, matrix, importance, {.clip = options_.clip}, context.executor);
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

bool RoundPass::quantize_tensor(Model& model, Index at, const Inputs& inputs, Context& context,
                                PassRecord& record) const {
  const NamedMatrix tensor = model.tensors()[static_cast<std::size_t>(at)];
  FormatPointer format = format_of(tensor);
  if (format == nullptr || !model.is_original(at)) return false;
  const StoredMatrix& before = tensor.matrix;
  HONE_TRACE_ZONE("quantize tensor", {"tensor", tensor.name}, {"rows", before.rows},
                  {"cols", before.cols}, {"bytes", before.stored_bytes()});
  if (const std::string reason = reason_to_keep(tensor, *format); !reason.empty()) {
    record.kept.push_back(kept_row(tensor, *format, reason));
    return false;
  }
  const std::vector<float> values = values_of(before);
  const WeightMatrix matrix{values, before.rows, before.cols, tensor.name};
  format = format_for(format, matrix);
  if (!would_shrink(before, *format)) {  // its scales did not fit into f16
    record.kept.push_back(kept_row(tensor, *format, reason_of_size(tensor, *format)));
    return false;
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
  model.replace(at, std::move(encoded), options_.act_int8);
  return true;
}

// Quantizes the matrices of one layer with the inputs that the model, as it is now, gives them.
void RoundPass::quantize_layer(Model& model, Index layer, infer::LayerWalk& walk, Context& context,
                               PassRecord& record, std::vector<Index>& changed) const {
  const auto products = model_io::layer_products(model.architecture(), layer);
  std::vector<std::vector<Index>> matrices(products.size());
  std::vector<std::optional<kernels::Gram>> grams(products.size());
  bool any = false;
  for (std::size_t p = 0; p < products.size(); ++p) {
    for (const auto& [part, rows] : products[p].parts) {
      const NamedMatrix* tensor = model.find(model_io::layer_name(layer, concat(part, ".weight")));
      if (tensor == nullptr) continue;  // factored
      const FormatPointer format = format_of(*tensor);
      if (format == nullptr) continue;
      matrices[p].push_back(tensor - model.tensors().data());
      if (reason_to_keep(*tensor, *format).empty()) grams[p].emplace(products[p].inputs);
      any = any || grams[p].has_value();
    }
  }
  if (any) {
    walk.observe(layer, model, [&](Index product, const float* x, Index rows, Index cols) {
      auto& gram = grams[static_cast<std::size_t>(product)];
      if (gram) gram->add(x, rows, cols, context.executor);
    });
  }
  for (std::size_t p = 0; p < products.size(); ++p) {
    Inputs inputs{.gram = grams[p] ? &*grams[p] : nullptr};
    std::optional<ErrorFeedback> feedback;
    if (inputs.gram != nullptr && options_.rounding == Rounding::Gptq) {
      feedback.emplace(*inputs.gram,
                       FeedbackOptions{.act_order = options_.act_order, .damp = options_.damp},
                       model_io::layer_name(layer, products[p].name), context.executor);
      inputs.feedback = &*feedback;
    }
    for (const Index at : matrices[p]) {
      throw_if_cancelled(context);
      if (quantize_tensor(model, at, inputs, context, record)) changed.push_back(at);
    }
    grams[p].reset();
  }
  if (layer + 1 < model.architecture().layers) walk.advance(layer, model);
}

std::vector<Index> RoundPass::quantize_tensors(Model& model, Context& context,
                                               PassRecord& record) const {
  std::vector<Index> changed;
  if (options_.rounding != Rounding::Rtn) {
    HONE_REQUIRE(!context.calibration.empty(), "quantize", "There is no calibration text.");
    const Index layers = model.architecture().layers;
    Progress progress("quantize", layers, "layers");
    infer::LayerWalk walk(model, context.calibration, infer::Activations::Int8, context.executor);
    for (Index layer = 0; layer < layers; ++layer) {
      throw_if_cancelled(context);
      quantize_layer(model, layer, walk, context, record, changed);
      progress.update(layer + 1);
    }
  }
  const auto count = static_cast<Index>(model.tensors().size());
  Progress progress("quantize", count, "tensors");
  for (Index at = 0; at < count; ++at) {
    throw_if_cancelled(context);
    const NamedMatrix& tensor = model.tensors()[static_cast<std::size_t>(at)];
    progress.update(at + 1, tensor.name);
    if (options_.rounding != Rounding::Rtn && role_of(tensor) == Role::Linear) continue;
    if (quantize_tensor(model, at, {}, context, record)) changed.push_back(at);
  }
  return changed;
}

PassRecord RoundPass::apply(Model& model, Context& context) {
  PassRecord record;
  record.family = "quantize";
  record.name = concat("quantize ", format_->name(), " ", name_of(options_.rounding),
                       options_.clip ? "" : " noclip");
  HONE_TRACE_ZONE("pass", {"name", record.name});
  const Model before = model;
  std::vector<Index> changed;
  try {
    changed = quantize_tensors(model, context, record);
  } catch (const Error& error) {
    model = before;
    if (error.category() != ErrorCategory::InvalidArgument) throw;
    record.status = Status::Failed;
    record.reason = error.what();
    return record;
  }
  if (changed.empty()) {
    record.reason = "passes before it changed every matrix that it would make smaller";
    return record;
  }
  time_products(before.tensors(), model.tensors(), changed, context, record);
  if (context.quality) record.quality = context.quality(model);
  apply_gate(recipe_.gate, record);
  if (record.status != Status::Applied) model = before;
  return record;
}

}  // namespace

bool is_changed(const QuantizePass& options, const Recipe& recipe, const NamedMatrix& tensor) {
  return is_named(options, recipe, tensor) && (recipe.requantize || !is_quantized(tensor));
}

std::unique_ptr<Pass> make_quantize_pass(const QuantizePass& options, const Recipe& recipe) {
  return std::make_unique<RoundPass>(options, recipe);
}

}  // namespace hone::compress
