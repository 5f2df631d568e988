// SPDX-License-Identifier: Apache-2.0
#include "hone/train/serve/torchscript.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <sstream>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/ratio_json.h"
#include "hone/train/device.h"
#include "hone/train/relative_error.h"
#include "hone/train/serve/script_file.h"
#include "hone/train/surgery/evaluation_scope.h"

namespace hone::nn {
namespace {

namespace fs = std::filesystem;

using torch::Tensor;
using Script = torch::jit::Module;
using Forward = std::function<Tensor(const Tensor&)>;

// A tensor that requires a gradient cannot become a constant of a graph.
class DetachedScope {
 public:
  explicit DetachedScope(const torch::nn::Module& module) {
    for (const Tensor& parameter : module.parameters()) {
      if (parameter.requires_grad()) changed_.push_back(parameter);
    }
    for (Tensor& parameter : changed_) parameter.set_requires_grad(false);
  }
  ~DetachedScope() {
    for (Tensor& parameter : changed_) parameter.set_requires_grad(true);
  }
  DetachedScope(const DetachedScope&) = delete;
  DetachedScope& operator=(const DetachedScope&) = delete;

 private:
  std::vector<Tensor> changed_;
};

Script trace(const ModuleCall& model, const Tensor& example) {
  Script module("__torch__.Traced");
  module.register_attribute("training", c10::BoolType::get(), false);
  const auto run = [&](torch::jit::Stack inputs) {
    return torch::jit::Stack{model(inputs.at(0).toTensor())};
  };
  const auto no_names = [](const Tensor&) { return std::string(); };
  const auto traced = torch::jit::tracer::trace({example}, run, no_names, /*strict=*/true,
                                                /*force_outplace=*/false, &module, {"x"});
  auto* const method = module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), "forward"), traced.first->graph);
  module.type()->addMethod(method);
  return module;
}

Forward forward_of(Script module) {
  return [module](const Tensor& x) mutable { return module.forward({x}).toTensor(); };
}

// Inputs of the same kind with other values, on which a trace of the right model agrees.
Tensor other_values(const Tensor& example) {
  return example.is_floating_point() ? example.flip({0}) * 0.75 + 0.125 : example.flip({-1});
}

class Trials {
 public:
  Trials(Forward reference, const Tensor& example, Measurer& measurer, const ScriptOptions& options)
      : reference_(std::move(reference)),
        example_(example),
        measurer_(measurer),
        options_(options),
        other_(other_values(example)) {
    want_ = reference_(example_);
    want_other_ = reference_(other_);
  }

  // Makes a form and checks it. Returns it if it works.
  std::optional<Script> add(const std::string& name, const std::function<Script()>& make) {
    ScriptForm form{.name = name};
    std::optional<Script> made;
    try {
      made = make();
      Forward forward = forward_of(*made);
      // The first calls compile the graph.
      for (int i = 0; i < 3; ++i) form.error = relative_error(forward(example_), want_);
      const double other = relative_error(forward(other_), want_other_);
      if (!(form.error <= options_.tolerance)) {
        form.problem = concat("Its error of ", form.error, " is above the tolerance.");
      } else if (!(other <= options_.tolerance)) {
        form.problem = concat("It depends on the values of the example: for others, its error is ",
                              other, '.');
      } else {
        form.works = true;
        forwards_.push_back(std::move(forward));
      }
    } catch (const std::exception& error) {
      form.problem = script_problem(error);
    }
    if (!form.works) made.reset();
    report_.forms.push_back(std::move(form));
    return made;
  }

  // Times all forms that work, and chooses the fastest one if it is faster than the reference.
  ScriptReport finish() {
    std::vector<Contestant> contestants{{"reference", run_of(reference_)}};
    for (const Forward& forward : forwards_) contestants.push_back({"form", run_of(forward)});
    const Measurement measured = measurer_.measure(contestants, options_.measure);
    Index at = 0;
    ScriptForm* best = nullptr;
    for (ScriptForm& form : report_.forms) {
      if (!form.works) continue;
      ++at;
      form.ms = 1e3 * measurer_.spread(measured.seconds[static_cast<std::size_t>(at)]).median;
      form.speedup = measurer_.speedup(measured, at, 0);
      const bool is_faster = form.speedup.low > 1;
      if (is_faster && (best == nullptr || form.ms < best->ms)) best = &form;
    }
    if (best != nullptr) best->is_chosen = true;
    report_.verdict = best != nullptr
                          ? concat("TorchScript is faster in its form ", best->name, '.')
                      : at == 0 ? "TorchScript does not work for this model."
                                : "TorchScript is not faster.";
    return report_;
  }

 private:
  std::function<void()> run_of(const Forward& forward) const {
    return [forward, this] {
      forward(example_);
      synchronize(example_.device());
    };
  }

  Forward reference_;
  const Tensor& example_;
  Measurer& measurer_;
  const ScriptOptions& options_;
  Tensor other_, want_, want_other_;
  std::vector<Forward> forwards_;
  ScriptReport report_;
};

// Adds the forms that come from a module in evaluation mode, and returns them by name.
std::vector<std::pair<std::string, Script>> add_frozen(Trials& trials, const Script& module) {
  std::vector<std::pair<std::string, Script>> made;
  const auto add = [&](const std::string& name, const std::function<Script()>& make) {
    if (auto form = trials.add(name, make)) made.emplace_back(name, *form);
  };
  add("frozen", [&] { return torch::jit::freeze(module); });
  // It changes the module that it is given.
  add("optimized", [&] {
    Script copy = module.clone();
    return torch::jit::optimize_for_inference(copy);
  });
  return made;
}

// The bytes of a file, if LibTorch can read it again: it writes some forms that it cannot read.
std::optional<std::string> file_of(const Script& module, const Tensor& example) {
  std::ostringstream bytes;
  try {
    torch::jit::ExportModule(module, [&](const void* data, std::size_t size) {
      bytes.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
      return size;
    });
    std::istringstream again(bytes.str());
    forward_of(torch::jit::load(again))(example);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return bytes.str();
}

// Writes the fastest of the chosen forms that can be written, which is then the chosen one.
void write_fastest(const std::vector<std::pair<std::string, Script>>& made, const Tensor& example,
                   const fs::path& out, ScriptReport& report) {
  std::vector<ScriptForm*> by_time;
  for (ScriptForm& form : report.forms) {
    if (std::exchange(form.is_chosen, false) || (form.works && form.speedup.low > 1)) {
      by_time.push_back(&form);
    }
  }
  std::ranges::sort(by_time, {}, [](const ScriptForm* form) { return form->ms; });
  for (ScriptForm* form : by_time) {
    const auto found =
        std::ranges::find(made, form->name, [](const auto& entry) { return entry.first; });
    const std::optional<std::string> bytes = file_of(found->second, example);
    if (!bytes) {
      form->problem = "LibTorch cannot read it again from a file.";
      continue;
    }
    AtomicFile target(out);
    target.write(*bytes);
    target.commit();
    form->is_chosen = true;
    report.verdict =
        concat("TorchScript is faster in its form ", form->name, ", which was written.");
    return;
  }
  report.verdict = by_time.empty() ? "TorchScript is not faster, so nothing was written."
                                   : "No faster form can be written to a file.";
}

}  // namespace

const ScriptForm* ScriptReport::chosen() const {
  const auto found = std::ranges::find_if(forms, &ScriptForm::is_chosen);
  return found == forms.end() ? nullptr : &*found;
}

Json to_json(const ScriptReport& report) {
  Json forms = Json::array();
  for (const ScriptForm& form : report.forms) {
    forms.push_back({{"form", form.name},
                     {"works", form.works},
                     {"problem", form.problem},
                     {"error", form.error},
                     {"ms", form.ms},
                     {"speedup", hone::to_json(form.speedup)},
                     {"chosen", form.is_chosen}});
  }
  return {{"forms", std::move(forms)}, {"verdict", report.verdict}};
}

ScriptReport try_script(const ModuleCall& model, const Tensor& example, Measurer& measurer,
                        const ScriptOptions& options) {
  const EvaluationScope evaluation(model.module());
  const DetachedScope detached(model.module());
  const at::NoGradGuard no_grad;
  Trials trials([&](const Tensor& x) { return model(x); }, example, measurer, options);
  const auto traced = trials.add("traced", [&] { return trace(model, example); });
  if (traced) add_frozen(trials, *traced);
  return trials.finish();
}

ScriptReport optimize_script(const fs::path& file, const Tensor& example, Measurer& measurer,
                             const fs::path& out, const ScriptOptions& options) {
  const std::string where = file.string();
  if (!out.empty()) check_output_spares(out, file);
  const at::NoGradGuard no_grad;
  Script module = load_script(file);
  try {
    forward_of(module)(example);
  } catch (const std::exception& error) {
    fail_corrupt(where,
                 concat("a TorchScript file that runs on inputs ", c10::str(example.sizes())),
                 script_problem(error));
  }
  Trials trials(forward_of(module), example, measurer, options);
  const auto made = add_frozen(trials, module);
  ScriptReport report = trials.finish();
  if (!out.empty()) write_fastest(made, example, out, report);
  return report;
}

}  // namespace hone::nn
