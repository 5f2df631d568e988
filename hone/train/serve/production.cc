// SPDX-License-Identifier: Apache-2.0
#include "hone/train/serve/production.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/ratio_json.h"
#include "hone/core/text_format.h"
#include "hone/train/device.h"
#include "hone/train/relative_error.h"
#include "hone/train/surgery/evaluation_scope.h"
#include "hone/train/surgery/input_observer.h"
#include "hone/train/surgery/layer_select.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/train/surgery/on_off.h"

namespace hone::nn {
namespace {

using torch::Tensor;
using Switch = std::function<void(bool on)>;

constexpr std::string_view kProduction = "optimize_for_production";
constexpr std::array<std::pair<std::string_view, FreezeLevel>, 3> kLevels{
    {{"exact", FreezeLevel::Exact},
     {"standard", FreezeLevel::Standard},
     {"aggressive", FreezeLevel::Aggressive}}};
constexpr double kExactError = 1e-5, kStandardError = 0.02, kAggressiveError = 0.1;

// A layer that was exchanged.
struct Change {
  std::string path;
  torch::nn::AnyModule before, after;
};

Switch switch_of(torch::nn::Module& model, const std::vector<Change>& changes) {
  return [&model, changes](bool on) {
    for (const Change& change : changes) {
      replace(model, change.path, on ? change.after : change.before);
    }
  };
}

// Exchanges factored layers for their fastest forms on the inputs that they have in `run`. Nothing
// without factored layers.
std::optional<std::vector<Change>> freeze_factored(torch::nn::Module& model,
                                                   const std::function<void()>& run,
                                                   Measurer& measurer,
                                                   const FreezeOptions& options) {
  std::vector<std::pair<std::string, FactoredLinear>> layers;
  std::vector<std::string> paths;
  for (const Layer& layer : layers_of(model)) {
    const auto factored = std::dynamic_pointer_cast<FactoredLinearImpl>(layer.module);
    if (factored == nullptr || !is_replaceable(layer)) continue;
    layers.emplace_back(layer.path, FactoredLinear(factored));
    paths.push_back(layer.path);
  }
  if (layers.empty()) return std::nullopt;
  std::map<std::string, Tensor> inputs;
  observe_inputs(model, paths, run, [&](const std::string& path, const Tensor& x) {
    inputs.emplace(path, x.detach().clone());
  });
  std::vector<Change> changes;
  for (const auto& [path, layer] : layers) {
    const auto input = inputs.find(path);
    if (input == inputs.end()) continue;
    const FrozenChoice choice = freeze_measured(layer, input->second, measurer, options);
    if (std::ranges::none_of(choice.trials, &FreezeTrial::is_chosen)) continue;
    changes.push_back({path, content_of(find_layer(model, path)), choice.layer});
    replace(model, path, choice.layer);
  }
  return changes;
}

class Production {
 public:
  Production(ModuleCall model, const Tensor& example, Measurer& measurer,
             const ProductionOptions& options)
      : model_(std::move(model)), example_(example), measurer_(measurer), options_(options) {
    HONE_REQUIRE(example.defined() && example.numel() > 0, kProduction, "The example is empty.");
    HONE_REQUIRE(!model_.module().is_training(), kProduction,
                 "The model is in training mode. Call eval() first.");
    HONE_CHECK(options.max_error >= 0 && options.max_error < 1, kProduction, "max_error in [0, 1)",
               options.max_error);
    const bool is_aggressive = options.level == FreezeLevel::Aggressive;
    limit_ = options.max_error > 0 ? options.max_error
             : is_aggressive       ? kAggressiveError
                                   : kStandardError;
  }

  ProductionReport run() {
    report_.bytes_before = stored_bytes(model_.module());
    want_ = call();
    if (options_.tries_script) {
      report_.script = try_script(model_, example_, measurer_, {.measure = options_.measure});
    }
    fuse_sites();
    freeze_layers();
    quantize_layers();
    finish();
    return std::move(report_);
  }

 private:
  Tensor call() const {
    const at::NoGradGuard no_grad;
    const Tensor y = model_(example_);
    synchronize(example_.device());
    return y;
  }

  // A stage as it begins, on the model so far.
  ProductionStage stage(const char* name) const {
    return {.name = name,
            .reason = {},
            .bytes_before = stored_bytes(model_.module()),
            .bytes_after = stored_bytes(model_.module())};
  }

  void add(ProductionStage stage) {
    stage.bytes_after = stored_bytes(model_.module());
    stage.error = relative_error(call(), want_);
    report_.stages.push_back(std::move(stage));
  }

  // fuse() looks at both kinds of sites at once; they are two stages.
  void fuse_sites() {
    ProductionStage fold = stage("fold"), rest = stage("fuse");
    report_.fusion = fuse(model_, example_, measurer_, {.measure = options_.measure});
    for (const bool is_fold : {true, false}) {
      ProductionStage& own = is_fold ? fold : rest;
      Index found = 0;
      std::string rejected;
      for (const FusionMatch& match : report_.fusion.matches) {
        if (match.pattern.starts_with("conv_bn") != is_fold) continue;
        ++found;
        if (match.status == FusionStatus::Applied) ++own.layers;
        if (match.status == FusionStatus::Rejected) rejected = match.reason;
      }
      own.speedup = report_.fusion.speedup;
      if (own.layers > 0) {
        own.status = CompressionStatus::Applied;
        own.reason = concat(own.layers, " of ", found, " sites are faster as one operator.");
      } else if (found == 0) {
        own.reason = is_fold ? "No convolution is followed by batch normalization."
                             : "No neighboring operators can be one.";
      } else {
        own.status = CompressionStatus::Failed;
        own.reason = rejected;
      }
    }
    if (report_.fusion.count(FusionStatus::Applied) > 0) {
      switches_.push_back(report_.fusion.set_applied);
    }
    add(std::move(fold));
    add(std::move(rest));
  }

  void freeze_layers() {
    ProductionStage own = stage("freeze");
    const bool is_exact = options_.level == FreezeLevel::Exact;
    const FreezeOptions options{.level = options_.level,
                                .tolerance = is_exact ? kExactError : limit_ / 4,
                                .measure = options_.measure};
    const auto changes = freeze_factored(
        model_.module(), [this] { call(); }, measurer_, options);
    own.reason = !changes           ? "There are no factored layers."
                 : changes->empty() ? "No other form of the factored layers is faster within the "
                                      "tolerance."
                                    : "";
    if (changes && !changes->empty()) {
      own.layers = std::ssize(*changes);
      judge(own, switch_of(model_.module(), *changes));
    }
    add(std::move(own));
  }

  void quantize_layers() {
    ProductionStage own = stage("quantize");
    if (options_.level == FreezeLevel::Exact) {
      own.reason = "The level is exact.";
      return add(std::move(own));
    }
    const bool is_aggressive = options_.level == FreezeLevel::Aggressive;
    const bool has_inputs = !options_.calibration.empty();
    const QuantizeOptions options{
        .spec = !is_aggressive ? "int8:row"
                : has_inputs   ? "int4:g32:gptq"
                               : "int4:g32",
        .calibration = options_.calibration,
        .example = example_,
        .measure = {.max_seconds = options_.measure.max_seconds / 4, .warns_of_drift = false}};
    report_.quantization = quantize(model_, options, &measurer_);
    const QuantizeReport& found = *report_.quantization;
    own.layers =
        std::ranges::count(found.layers, CompressionStatus::Applied, &QuantizedLayerRecord::status);
    own.reason = found.verdict;
    if (found.is_applied) judge(own, found.set_applied);
    if (own.status == CompressionStatus::Failed) note_undone(own.reason);
    add(std::move(own));
  }

  // The report of quantize() says what became of it.
  void note_undone(const std::string& reason) {
    QuantizeReport& report = *report_.quantization;
    report.is_applied = false;
    report.verdict = reason;
    report.bytes_after = report.bytes_before;
    for (QuantizedLayerRecord& layer : report.layers) {
      if (layer.status != CompressionStatus::Applied) continue;
      layer.status = CompressionStatus::Failed;
      layer.reason = reason;
    }
  }

  // Keeps a stage that is in the model, or undoes it.
  void judge(ProductionStage& own, const Switch& set) {
    own.status = CompressionStatus::Applied;
    const double error = relative_error(call(), want_);
    std::string problem;
    if (!(error <= limit_)) {
      problem = concat("The model's error would be ", fixed(error, 4), ", above the limit of ",
                       limit_, '.');
    } else {
      own.speedup = speedup_of_changes([this] { call(); }, {set}, measurer_, options_.measure);
      if (own.speedup.high < 1) problem = "The model would be slower.";
    }
    if (problem.empty()) {
      own.reason = concat(own.layers, " layers were exchanged.");
      switches_.push_back(set);
      return;
    }
    set(false);
    own.status = CompressionStatus::Failed;
    own.reason = problem;
    own.layers = 0;
  }

  // The whole against the model as it was.
  void finish() {
    const Tensor got = call();
    report_.bytes_after = stored_bytes(model_.module());
    report_.error = relative_error(got, want_);
    if (want_.dim() >= 2) {
      report_.agreement = got.argmax(-1).eq(want_.argmax(-1)).to(at::kDouble).mean().item<double>();
    }
    if (switches_.empty()) {
      report_.verdict = "Nothing was changed, because nothing was faster.";
      return;
    }
    const auto set = [this](bool on) {
      if (on) {
        for (const Switch& each : switches_) each(true);
      } else {
        for (auto at = switches_.rbegin(); at != switches_.rend(); ++at) (*at)(false);
      }
    };
    report_.speedup = speedup_of_changes([this] { call(); }, {set}, measurer_, options_.measure);
    report_.verdict = concat(
        "The model is ", fixed(report_.speedup.ratio, 2), " times as fast [",
        fixed(report_.speedup.low, 2), ", ", fixed(report_.speedup.high, 2), "] and takes ",
        fixed(static_cast<double>(report_.bytes_before) / static_cast<double>(report_.bytes_after),
              2),
        " times fewer bytes.");
  }

  ModuleCall model_;
  const Tensor& example_;
  Measurer& measurer_;
  const ProductionOptions& options_;
  double limit_ = 0;
  Tensor want_;
  std::vector<Switch> switches_;  // of the stages that are in the model
  ProductionReport report_;
};

}  // namespace

std::optional<FreezeLevel> find_level(std::string_view name) {
  for (const auto& [known, level] : kLevels) {
    if (name == known) return level;
  }
  return std::nullopt;
}

ProductionReport optimize_for_production(const ModuleCall& model, const Tensor& example,
                                         Measurer& measurer, const ProductionOptions& options) {
  return Production(model, example, measurer, options).run();
}

Json to_json(const ProductionReport& report) {
  Json stages = Json::array();
  for (const ProductionStage& stage : report.stages) {
    stages.push_back({{"stage", stage.name},
                      {"status", name_of(stage.status)},
                      {"reason", stage.reason},
                      {"layers", stage.layers},
                      {"bytes_before", stage.bytes_before},
                      {"bytes_after", stage.bytes_after},
                      {"error", stage.error},
                      {"speedup", hone::to_json(stage.speedup)}});
  }
  return {{"stages", std::move(stages)},
          {"bytes_before", report.bytes_before},
          {"bytes_after", report.bytes_after},
          {"error", report.error},
          {"agreement", report.agreement},
          {"speedup", hone::to_json(report.speedup)},
          {"torchscript", report.script ? to_json(*report.script) : Json()},
          {"fusion", to_json(report.fusion)},
          {"quantization", report.quantization ? to_json(*report.quantization) : Json()},
          {"verdict", report.verdict}};
}

}  // namespace hone::nn
