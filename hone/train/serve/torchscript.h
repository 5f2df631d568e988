// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/machine/measurer.h"
#include "hone/train/surgery/module_call.h"

// LibTorch's own way to prepare a model for inference, TorchScript, measured.
namespace hone::nn {

// One form of a model: "traced", "frozen", "optimized".
struct ScriptForm {
  std::string name;
  bool works = false;
  std::string problem = {};    // why it does not work; one sentence
  double error = 0;            // relative, of its output
  double ms = 0;               // median
  RatioInterval speedup = {};  // over the model, or over the file as it was loaded
  bool is_chosen = false;
};

struct ScriptReport {
  std::vector<ScriptForm> forms;
  std::string verdict;  // one sentence

  const ScriptForm* chosen() const;
};
Json to_json(const ScriptReport& report);

struct ScriptOptions {
  double tolerance = 1e-4;  // relative error of outputs
  MeasureOptions measure = {.max_seconds = 1, .warns_of_drift = false};
};

// Traces a model on the example, freezes it and optimizes it for inference, and times each form
// against the model. A form that LibTorch cannot make, whose outputs differ, or that depends on the
// values of the example, has its problem. The model stays as it is.
ScriptReport try_script(const ModuleCall& model, const torch::Tensor& example, Measurer& measurer,
                        const ScriptOptions& options = {});

// The same for a TorchScript file, whose forward() takes one tensor. Writes the fastest form to
// `out`, if that is not empty and the form is faster over its whole interval, and LibTorch can read
// it again: optimized forms with layouts of oneDNN are for one process only. The file is not
// changed. Throws Error{NotFound}, and Error{CorruptFile} for what LibTorch cannot load or run on
// the example.
ScriptReport optimize_script(const std::filesystem::path& file, const torch::Tensor& example,
                             Measurer& measurer, const std::filesystem::path& out = {},
                             const ScriptOptions& options = {});

}  // namespace hone::nn
