// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/quantize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/ratio_json.h"
#include "hone/core/text_format.h"
#include "hone/kernels/linalg/gram.h"
#include "hone/train/compress/format_choice.h"
#include "hone/train/compress/quantizable.h"
#include "hone/train/compress/recurrent.h"
#include "hone/train/device.h"
#include "hone/train/interop.h"
#include "hone/train/relative_error.h"
#include "hone/train/surgery/evaluation_scope.h"
#include "hone/train/surgery/input_observer.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/train/surgery/on_off.h"

namespace hone::nn {
namespace {

using torch::Tensor;

constexpr std::string_view kQuantize = "quantize";
constexpr Index kGramBytes = Index{1} << 30;  // of second moments that are kept at a time
constexpr Index kPatchRows = Index{1} << 15;  // of a batch that a layer's moments come from

// Rows that are spread over all rows of a batch.
Tensor spread_rows(const Tensor& rows, Index most) {
  if (rows.size(0) <= most) return rows;
  const Tensor at = at::arange(most, at::kLong).mul(rows.size(0)).div(most, "floor");
  return rows.index_select(0, at);
}

using Moments = std::map<std::string, kernels::Gram>;

Tensor call(const ModuleCall& model, const Tensor& x) {
  const at::NoGradGuard no_grad;
  const Tensor y = model(x);
  synchronize(x.device());
  return y;
}

// Adds the second moments of the inputs of those layers that have an entry.
void observe_moments(const ModuleCall& model, const std::vector<Tensor>& calibration,
                     std::span<const QuantizableLayer> layers, Moments& moments) {
  std::vector<std::string> paths;
  std::map<std::string, const QuantizableLayer*> by_path;
  for (const QuantizableLayer& layer : layers) {
    if (!moments.contains(layer.path)) continue;
    paths.push_back(layer.path);
    by_path[layer.path] = &layer;
  }
  if (paths.empty()) return;
  const auto observe = [&](const std::string& path, const Tensor& x) {
    if (x.numel() == 0) return;
    const Tensor rows = spread_rows(by_path.at(path)->inputs_of(x), kPatchRows);
    moments.at(path).add(rows.data_ptr<float>(), rows.size(0), rows.size(1), libtorch_executor());
  };
  const auto run = [&] {
    for (const Tensor& x : calibration) call(model, x);
  };
  observe_inputs(model.module(), paths, run, observe);
}

void undo_all(const std::vector<QuantizableLayer*>& changed) {
  for (auto at = changed.rbegin(); at != changed.rend(); ++at) (*at)->undo();
}

// What exchanges the layers that were quantized, and are in the model, for the float layers.
std::function<void(bool)> switch_of_layers(torch::nn::Module& model,
                                           const std::vector<QuantizableLayer*>& changed) {
  std::vector<std::function<void()>> undo;
  for (const QuantizableLayer* layer : changed) undo.push_back(layer->undo);
  std::vector<std::pair<RecurrentSlotImpl*, QuantizedRecurrent>> recurrent;
  for (const Layer& layer : layers_of(model)) {
    auto* const slot = dynamic_cast<RecurrentSlotImpl*>(layer.holder);
    if (slot != nullptr && slot->quantized()) recurrent.emplace_back(slot, slot->quantized());
  }
  std::vector<std::pair<std::string, torch::nn::AnyModule>> quantized;
  for (const QuantizedPlace& place : quantized_layers(model)) {
    const Layer layer = find_layer(model, place.path);
    if (is_replaceable(layer)) quantized.emplace_back(place.path, content_of(layer));
  }
  return [&model, undo, recurrent, quantized](bool on) {
    if (!on) {
      for (auto at = undo.rbegin(); at != undo.rend(); ++at) (*at)();
      return;
    }
    for (const auto& [path, layer] : quantized) replace(model, path, layer);
    for (const auto& [slot, layer] : recurrent) slot->set_quantized(layer);
  };
}

// Why the output of a quantized model is not good enough; empty if it is.
std::string problem_of(const Tensor& got, const Tensor& want, double error, double limit) {
  const auto is_finite = [](const Tensor& x) { return at::isfinite(x).all().item<bool>(); };
  if (!is_finite(want)) return "The outputs of the model are not finite, so nothing was changed.";
  if (!is_finite(got)) {
    return "The outputs of the quantized model are not finite, so nothing was changed.";
  }
  if (limit == 0 || error <= limit) return {};
  return concat("The model's error of ", fixed(error, 4), " is above the limit of ", limit,
                ", so nothing was changed.");
}

class Quantization {
 public:
  Quantization(ModuleCall model, const QuantizeOptions& options, Measurer* measurer)
      : model_(std::move(model)), options_(options), measurer_(measurer) {
    layers_ = quantizable_layers(model_.module());
    choices_ = choose_formats(model_.module(), layers_, options.spec, options.formats);
    const bool needs_inputs =
        std::ranges::any_of(choices_, [](const auto& item) { return item.second.needs_inputs(); });
    HONE_REQUIRE(!needs_inputs || !options.calibration.empty(), kQuantize,
                 "importance and gptq need calibration inputs, and there are none.");
    HONE_CHECK(options.max_error >= 0, kQuantize, "max_error of at least 0", options.max_error);
    example_ = options.example.defined() || options.calibration.empty() ? options.example
                                                                        : options.calibration[0];
  }

  QuantizeReport run() {
    QuantizeReport report;
    report.bytes_before = stored_bytes(model_.module());
    if (example_.defined()) {
      want_ = call(model_, example_);
      record_examples();
    }
    for (std::size_t begin = 0; begin < layers_.size();) begin = quantize_some(begin, report);
    finish(report);
    return report;
  }

 private:
  void record_examples() {
    std::vector<std::string> paths;
    for (const QuantizableLayer& layer : layers_) paths.push_back(layer.path);
    observe_inputs(
        model_.module(), paths, [&] { call(model_, example_); },
        [&](const std::string& path, const Tensor& x) {
          if (!examples_.contains(path)) examples_[path] = x.detach().clone();
        });
  }

  const FormatChoice* choice_of(const QuantizableLayer& layer) const {
    const auto found = choices_.find(layer.path);
    return found == choices_.end() ? nullptr : &found->second;
  }

  // Whether the second moments of its inputs are needed.
  bool is_observed(const QuantizableLayer& layer) const {
    const FormatChoice* const choice = choice_of(layer);
    return choice != nullptr && choice->needs_inputs() && layer.obstacle.empty() &&
           layer.inputs_of != nullptr;
  }

  // Quantizes layers from `begin` on, as many as the moments of their inputs have room, and returns
  // the next one. Later layers see inputs that the earlier ones compute from their codes.
  std::size_t quantize_some(std::size_t begin, QuantizeReport& report) {
    Moments moments;
    std::size_t end = begin;
    for (Index bytes = 0; end < layers_.size(); ++end) {
      if (!is_observed(layers_[end])) continue;
      const Index cols = layers_[end].weights[0].matrix.size(1);
      bytes += 8 * cols * cols;
      if (bytes > kGramBytes && !moments.empty()) break;
      moments.emplace(layers_[end].path, kernels::Gram(cols));
    }
    observe_moments(model_, options_.calibration, {layers_.data() + begin, end - begin}, moments);
    for (; begin < end; ++begin) {
      const auto found = moments.find(layers_[begin].path);
      report.layers.push_back(
          quantize_layer(layers_[begin], found == moments.end() ? nullptr : &found->second));
    }
    return end;
  }

  QuantizedLayerRecord quantize_layer(QuantizableLayer& layer, const kernels::Gram* moments) {
    QuantizedLayerRecord record{.path = layer.path, .type = layer.type};
    record.bytes_before = record.bytes_after = layer.bytes;
    const FormatChoice* const choice = choice_of(layer);
    record.reason = choice == nullptr ? "Its format is float." : layer.obstacle;
    if (!record.reason.empty()) return record;
    if (moments != nullptr && moments->rows() == 0) {
      record.reason = "The calibration inputs do not reach it.";
      return record;
    }
    try {
      change(layer, *choice, moments, record);
    } catch (const Error& error) {
      const bool is_broken = error.category() == ErrorCategory::CorruptFile;
      record.status = is_broken ? CompressionStatus::Failed : CompressionStatus::Skipped;
      record.reason = error.what();
    }
    return record;
  }

  void change(QuantizableLayer& layer, const FormatChoice& choice, const kernels::Gram* moments,
              QuantizedLayerRecord& record) {
    std::vector<StoredWeight> weights;
    Index before = 0, after = 0;
    for (const QuantizableLayer::Weight& weight : layer.weights) {
      EncodedWeight encoded = encode_weight(
          choice, weight.matrix, concat(layer.path, ".", weight.name), moments, options_.act_int8);
      record.format = encoded.weight.format();
      record.algorithm = encoded.algorithm;
      record.sqnr_db =
          weights.empty() ? encoded.sqnr_db : std::min(record.sqnr_db, encoded.sqnr_db);
      before += static_cast<Index>(weight.matrix.nbytes());
      after += encoded.weight.bytes();
      weights.push_back(std::move(encoded.weight));
    }
    if (after >= before) {
      record.reason = concat("Its weights would not be smaller in ", record.format, ".");
      return;
    }
    layer.apply(std::move(weights));
    changed_.push_back(&layer);
    record.status = CompressionStatus::Applied;
    record.reason = "Its weights are stored in fewer bits.";
    record.bytes_after = layer.bytes - before + after;
    measure(layer, record);
  }

  void measure(const QuantizableLayer& layer, QuantizedLayerRecord& record) {
    const auto example = examples_.extract(layer.path);  // it is needed no more
    if (example.empty() || layer.forward == nullptr) return;
    const Tensor& x = example.mapped();
    torch::nn::AnyModule fresh = content_of(find_layer(model_.module(), layer.path));
    const at::NoGradGuard no_grad;
    record.error = relative_error(fresh.forward(x), layer.forward(x));
    if (measurer_ == nullptr) return;
    const std::vector<Contestant> contestants{{"float",
                                               [&] {
                                                 layer.fastest(x);
                                                 synchronize(x.device());
                                               }},
                                              {"packed", [&] {
                                                 fresh.forward(x);
                                                 synchronize(x.device());
                                               }}};
    const Measurement measured = measurer_->measure(contestants, options_.measure);
    record.float_ms = 1e3 * measurer_->spread(measured.seconds[0]).median;
    record.packed_ms = 1e3 * measurer_->spread(measured.seconds[1]).median;
    record.speedup = measurer_->speedup(measured, 1, 0);
    if (record.speedup.high >= 1) return;
    record.is_packed = false;
    dynamic_cast<QuantizedLayer&>(*fresh.ptr()).set_product(ProductKind::Decoded);
    record.reason =
        "Its weights are stored in fewer bits; it computes with a decoded copy, since "
        "the packed product is slower here.";
  }

  // Looks at the whole model.
  void finish(QuantizeReport& report) {
    report.bytes_after = stored_bytes(model_.module());
    if (changed_.empty()) {
      report.verdict = "No layer was quantized.";
      return;
    }
    if (want_.defined()) {
      const Tensor got = call(model_, example_);
      report.error = relative_error(got, want_);
      if (want_.dim() >= 2) {
        report.agreement =
            got.argmax(-1).eq(want_.argmax(-1)).to(at::kDouble).mean().item<double>();
      }
      const std::string problem = problem_of(got, want_, report.error, options_.max_error);
      if (!problem.empty()) return veto(problem, report);
    }
    report.set_applied = switch_of_layers(model_.module(), changed_);
    if (want_.defined() && measurer_ != nullptr) {
      report.speedup = speedup_of_changes([this] { call(model_, example_); },
                                          {report.set_applied, "float", "quantized"}, *measurer_,
                                          options_.measure);
    }
    report.is_applied = true;
    report.verdict = concat(std::ssize(changed_), " of ", std::ssize(layers_),
                            " layers were quantized; the model takes ", fixed(report.ratio(), 2),
                            " times fewer bytes.");
  }

  void veto(const std::string& problem, QuantizeReport& report) {
    undo_all(changed_);
    for (QuantizedLayerRecord& record : report.layers) {
      if (record.status != CompressionStatus::Applied) continue;
      record.status = CompressionStatus::Failed;
      record.reason = problem;
    }
    report.bytes_after = report.bytes_before;
    report.verdict = problem;
  }

  ModuleCall model_;
  const QuantizeOptions& options_;
  Measurer* measurer_;
  std::vector<QuantizableLayer> layers_;
  std::map<std::string, FormatChoice> choices_;
  std::map<std::string, Tensor> examples_;
  std::vector<QuantizableLayer*> changed_;
  Tensor example_, want_;
};

}  // namespace

std::string_view name_of(CompressionStatus status) {
  constexpr std::array<std::string_view, 3> kWords{"applied", "skipped", "failed"};
  return kWords.at(static_cast<std::size_t>(status));
}

Index stored_bytes(const torch::nn::Module& model) {
  Index sum = 0;
  std::set<const void*> seen;
  for (const auto& tensors : {model.parameters(), model.buffers()}) {
    for (const Tensor& tensor : tensors) {
      if (!tensor.defined() || !seen.insert(tensor.data_ptr()).second) continue;
      sum += static_cast<Index>(tensor.nbytes());
    }
  }
  return sum;
}

QuantizeReport quantize(const ModuleCall& model, const QuantizeOptions& options,
                        Measurer* measurer) {
  Quantization quantization(model, options, measurer);
  const EvaluationScope evaluation(model.module());
  return quantization.run();
}

Json to_json(const QuantizeReport& report) {
  Json layers = Json::array();
  for (const QuantizedLayerRecord& layer : report.layers) {
    layers.push_back({{"path", layer.path},
                      {"type", layer.type},
                      {"status", name_of(layer.status)},
                      {"reason", layer.reason},
                      {"format", layer.format},
                      {"algorithm", layer.algorithm},
                      {"bytes_before", layer.bytes_before},
                      {"bytes_after", layer.bytes_after},
                      {"sqnr_db", layer.sqnr_db},
                      {"error", layer.error},
                      {"float_ms", layer.float_ms},
                      {"packed_ms", layer.packed_ms},
                      {"speedup", hone::to_json(layer.speedup)},
                      {"product", layer.is_packed ? "packed" : "decoded"}});
  }
  return {{"layers", std::move(layers)},
          {"bytes_before", report.bytes_before},
          {"bytes_after", report.bytes_after},
          {"compression_ratio", report.ratio()},
          {"error", report.error},
          {"agreement", report.agreement},
          {"speedup", hone::to_json(report.speedup)},
          {"applied", report.is_applied},
          {"verdict", report.verdict}};
}

}  // namespace hone::nn
