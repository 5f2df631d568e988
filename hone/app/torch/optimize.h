// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"
#include "hone/core/machine/measurer.h"

namespace hone::app {

struct OptimizeOptions {
  // A classifier that `hone train vision` wrote, or a TorchScript file.
  std::filesystem::path model;
  std::filesystem::path out;       // what is written; empty: nothing
  std::string level = "standard";  // nn::find_level(); of a classifier
  std::string data;                // training images that calibrate a classifier; may be empty
  Index batch = 32;                // inputs that are measured together, of a classifier
  std::vector<Index> shape;        // of the input of a TorchScript file, with its batch
  double max_error = 0;            // nn::ProductionOptions::max_error
  std::uint64_t seed = 0;
  int threads = 0;  // LibTorch threads; 0 means usable_cpus()
  std::stop_token stop = {};
};

struct OptimizeResult {
  Json document;  // nn::to_json() of the report, and "out": the written path or null
  bool written = false;
};

// Prepares a model for inference on this machine, and says what each stage has gained. `out` is a
// folder with the weights of a classifier in few bits, written if the last stage was applied; what
// is folded and fused is made again by every command that reads a folder. Of a TorchScript file it
// is the fastest form. The model is not changed. Throws Error{InvalidArgument} for options that do
// not fit the model.
OptimizeResult optimize_model(const OptimizeOptions& options, Measurer& measurer);
std::string to_table(const OptimizeResult& result);

}  // namespace hone::app
