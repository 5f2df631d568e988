// SPDX-License-Identifier: Apache-2.0
#include "hone/train/fuse/fuse.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/ratio_json.h"
#include "hone/train/device.h"
#include "hone/train/fuse/fusion_patterns.h"
#include "hone/train/relative_error.h"
#include "hone/train/surgery/evaluation_scope.h"
#include "hone/train/surgery/input_observer.h"
#include "hone/train/surgery/on_off.h"
#include "hone/train/surgery/slot.h"

namespace hone::nn {
namespace {

using torch::Tensor;
using torch::nn::Module;

constexpr std::string_view kOp = "fuse";

double median_of(const Measurement& measurement, std::size_t contestant, const Measurer& measurer) {
  return measurer.spread(measurement.seconds[contestant]).median;
}

// A site with what was found about it.
struct Candidate {
  FusionSite site;
  FusionMatch match;
  Tensor input;  // undefined if it was not seen
};

// Seconds for a byte that is read or written, by copying the largest input; 0 without any.
double seconds_per_byte(const std::vector<Candidate>& candidates, Measurer& measurer,
                        const MeasureOptions& options) {
  Tensor largest;
  for (const auto& [site, match, input] : candidates) {
    const bool is_larger =
        input.defined() && (!largest.defined() || input.nbytes() > largest.nbytes());
    if (is_larger) largest = input;
  }
  if (!largest.defined()) return 0;
  const Tensor target = at::empty_like(largest);
  const auto copy = [&] {
    Tensor(target).copy_(largest);
    synchronize(target.device());
  };
  const Measurement measured = measurer.measure(std::vector<Contestant>{{"copy", copy}}, options);
  return median_of(measured, 0, measurer) / static_cast<double>(2 * largest.nbytes());
}

class Fusion {
 public:
  Fusion(ModuleCall model, const Tensor& example, Measurer& measurer, const FusionOptions& options)
      : model_(std::move(model)), example_(example), measurer_(measurer), options_(options) {
    HONE_REQUIRE(example.defined() && example.numel() > 0, kOp, "The example is empty.");
    HONE_CHECK(options.tolerance >= 0 && options.tolerance < 1, kOp, "a tolerance in [0, 1)",
               options.tolerance);
    for (FusionSite& site : fusion_sites(model_.module())) {
      FusionMatch match{.pattern = site.pattern, .layers = site.layers, .reason = site.obstacle};
      if (!site.obstacle.empty()) match.status = FusionStatus::Rejected;
      candidates_.push_back({std::move(site), std::move(match), {}});
    }
  }

  void analyze() {
    want_ = run();
    record_inputs();
    seconds_per_byte_ = seconds_per_byte(candidates_, measurer_, options_.measure);
    for (Candidate& candidate : candidates_) measure(candidate);
  }

  void apply() {
    for (Candidate& candidate : candidates_) {
      if (candidate.match.status != FusionStatus::Found) continue;
      if (candidate.match.speedup.low <= 1) {
        reject(candidate, "It is not faster than the separate layers.");
        continue;
      }
      candidate.site.apply();
      candidate.match.status = FusionStatus::Applied;
      candidate.match.reason = "It is faster and within the tolerance.";
    }
    judge();
  }

  std::function<void(bool)> switch_of_changes() const {
    std::vector<FusionSite> sites;
    for (const Candidate& candidate : candidates_) {
      if (is_applied(candidate)) sites.push_back(candidate.site);
    }
    return [sites = std::move(sites)](bool on) {
      for (const FusionSite& site : sites) (on ? site.apply : site.undo)();
    };
  }

  FusionReport report() const {
    FusionReport report;
    for (const Candidate& candidate : candidates_) {
      report.matches.push_back(candidate.match);
      if (candidate.match.pattern == "linear_relu") ++report.linear_relu_pairs;
      if (candidate.match.pattern.starts_with("conv_bn")) ++report.conv_bn_pairs;
    }
    std::ranges::stable_sort(report.matches, std::greater{}, [](const FusionMatch& match) {
      return match.separate_ms - match.fused_ms;
    });
    for (const auto& module : model_.module().modules()) {
      if (dynamic_cast<TransparentHolder*>(module.get()) == nullptr) ++report.total_modules;
    }
    report.fusable_modules = report.linear_relu_pairs + report.conv_bn_pairs;
    report.fusion_potential =
        static_cast<double>(report.fusable_modules) / static_cast<double>(report.total_modules);
    report.error = error_;
    report.speedup = speedup_;
    report.verdict = verdict_;
    return report;
  }

 private:
  Tensor run() {
    const at::NoGradGuard no_grad;
    const Tensor y = model_(example_);
    synchronize(example_.device());
    return y;
  }

  static void reject(Candidate& candidate, std::string reason) {
    candidate.match.status = FusionStatus::Rejected;
    candidate.match.reason = std::move(reason);
  }

  void record_inputs() {
    std::vector<std::string> paths;
    for (const Candidate& candidate : candidates_) {
      if (candidate.match.status == FusionStatus::Found) {
        paths.push_back(candidate.site.layers.front());
      }
    }
    std::map<std::string, Tensor> inputs;
    observe_inputs(
        model_.module(), paths, [&] { run(); },
        [&](const std::string& path, const Tensor& x) {
          if (!inputs.contains(path)) inputs[path] = x.detach().clone();
        });
    for (Candidate& candidate : candidates_) {
      if (candidate.match.status != FusionStatus::Found) continue;
      const auto found = inputs.find(candidate.site.layers.front());
      if (found != inputs.end()) {
        candidate.input = found->second;
      } else {
        reject(candidate,
               "The example does not reach its first layer, or the layer is in no Slot.");
      }
    }
  }

  void measure(Candidate& candidate) {
    if (candidate.match.status != FusionStatus::Found) return;
    const at::NoGradGuard no_grad;
    const Tensor& x = candidate.input;
    const Tensor laid_out =
        candidate.site.channels_last ? x.contiguous(at::MemoryFormat::ChannelsLast) : x;
    const Tensor want = candidate.site.separate(x);
    FusionMatch& match = candidate.match;
    match.error = relative_error(candidate.site.fused(laid_out), want);
    match.intermediate_bytes =
        2 * (candidate.site.operators - 1) * static_cast<Index>(want.nbytes());
    match.predicted_ms = 1e3 * seconds_per_byte_ * static_cast<double>(match.intermediate_bytes);
    if (!(match.error <= options_.tolerance)) {
      reject(candidate, concat("Its error of ", match.error, " is above the tolerance of ",
                               options_.tolerance, "."));
      return;
    }
    const auto timed = [&](const auto& form, const Tensor& in) {
      return [&form, in] {
        form(in);
        synchronize(in.device());
      };
    };
    const std::vector<Contestant> contestants{{"separate", timed(candidate.site.separate, x)},
                                              {"fused", timed(candidate.site.fused, laid_out)}};
    const Measurement measured = measurer_.measure(contestants, options_.measure);
    match.separate_ms = 1e3 * median_of(measured, 0, measurer_);
    match.fused_ms = 1e3 * median_of(measured, 1, measurer_);
    match.speedup = measurer_.speedup(measured, 1, 0);
    candidate.input.reset();
  }

  bool is_applied(const Candidate& candidate) const {
    return candidate.match.status == FusionStatus::Applied;
  }
  void set_applied(bool on) {
    for (Candidate& candidate : candidates_) {
      if (is_applied(candidate)) (on ? candidate.site.apply : candidate.site.undo)();
    }
  }
  void undo_all(const std::string& why) {
    set_applied(false);
    for (Candidate& candidate : candidates_) {
      if (is_applied(candidate)) reject(candidate, why);
    }
    verdict_ = why;
  }

  // Looks at the whole model.
  void judge() {
    if (std::ranges::none_of(candidates_, [&](const auto& each) { return is_applied(each); })) {
      verdict_ = "No site was fused.";
      return;
    }
    try {
      error_ = relative_error(run(), want_);
    } catch (const c10::Error& error) {
      undo_all(concat("The fused model failed: ",
                      std::string(error.what_without_backtrace()).substr(0, 200)));
      return;
    }
    if (!(error_ <= options_.tolerance)) {
      undo_all(concat("The model's error of ", error_, " is above the tolerance of ",
                      options_.tolerance, "."));
      return;
    }
    speedup_ = speedup_of_changes([this] { run(); },
                                  {[this](bool on) { set_applied(on); }, "separate", "fused"},
                                  measurer_, options_.measure);
    if (speedup_.high < 1) {
      undo_all("The fused model is slower.");
      return;
    }
    verdict_ =
        speedup_.is_tie() ? "The fused model is as fast as before." : "The fused model is faster.";
  }

  ModuleCall model_;
  Tensor example_, want_;
  Measurer& measurer_;
  const FusionOptions& options_;
  std::vector<Candidate> candidates_;
  double seconds_per_byte_ = 0, error_ = 0;
  RatioInterval speedup_;
  std::string verdict_;
};

}  // namespace

Index FusionReport::count(FusionStatus status) const {
  return std::ranges::count(matches, status, &FusionMatch::status);
}

Json to_json(const FusionReport& report) {
  Json matches = Json::array();
  for (const FusionMatch& match : report.matches) {
    constexpr std::array kWords{"found", "applied", "rejected"};
    matches.push_back({{"pattern", match.pattern},
                       {"layers", match.layers},
                       {"status", kWords.at(static_cast<std::size_t>(match.status))},
                       {"reason", match.reason},
                       {"intermediate_bytes", match.intermediate_bytes},
                       {"predicted_ms", match.predicted_ms},
                       {"separate_ms", match.separate_ms},
                       {"fused_ms", match.fused_ms},
                       {"speedup", hone::to_json(match.speedup)},
                       {"error", match.error}});
  }
  return {{"linear_relu_pairs", report.linear_relu_pairs},
          {"conv_bn_pairs", report.conv_bn_pairs},
          {"total_modules", report.total_modules},
          {"fusable_modules", report.fusable_modules},
          {"fusion_potential", report.fusion_potential},
          {"matches", std::move(matches)},
          {"error", report.error},
          {"speedup", hone::to_json(report.speedup)},
          {"verdict", report.verdict}};
}

FusionReport analyze_fusion(const ModuleCall& model, const Tensor& example, Measurer& measurer,
                            const FusionOptions& options) {
  const EvaluationScope evaluation(model.module());
  Fusion fusion(model, example, measurer, options);
  fusion.analyze();
  return fusion.report();
}

FusionReport fuse(const ModuleCall& model, const Tensor& example, Measurer& measurer,
                  const FusionOptions& options) {
  Fusion fusion(model, example, measurer, options);
  const EvaluationScope evaluation(model.module());
  fusion.analyze();
  fusion.apply();
  FusionReport report = fusion.report();
  report.set_applied = fusion.switch_of_changes();
  return report;
}

Index fuse_unmeasured(Module& model) {
  Index count = 0;
  for (const FusionSite& site : fusion_sites(model)) {
    if (!site.obstacle.empty()) continue;
    site.apply();
    ++count;
  }
  return count;
}

}  // namespace hone::nn
