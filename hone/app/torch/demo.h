// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/app/eval_lm.h"
#include "hone/app/torch/train_lm.h"
#include "hone/core/machine/measurer.h"
#include "hone/core/thread/executor.h"
#include "hone/data/story_grammar.h"
#include "hone/measure/pareto.h"

namespace hone::app {

struct DemoOptions {
  std::filesystem::path out = "build/demo";
  std::filesystem::path data;  // text to learn from; empty: the embedded story grammar
  bool quick = false;          // train for half a minute
  bool fresh = false;          // train again even if the same run exists
  int threads = 0;
  Index seed = 0;  // trainer.seed
  std::stop_token stop = {};
};

// One way to store the model, and its measurements.
struct DemoVariant {
  std::string name;  // "int4:g32"
  std::filesystem::path path;
  Index bytes = 0;  // size of the weights file
  EvalResult eval;  // compared with fp32; fp32 with itself
  Spread tokens_per_s;
  std::string sample;                         // one generated text, prompt left out
  std::optional<data::StoryVerdict> verdict;  // for all generated stories; set for stories only
};

struct DemoResult {
  TrainLmResult training;
  bool trained_before = false;
  std::optional<double> floor_bits_per_byte;  // exact entropy of the held-out stories
  std::vector<DemoVariant> variants;          // fp32 first
  std::vector<Index> front;                   // Pareto front: bytes, perplexity ratio, token time
  Json passes = Json::array();
  std::string prompt;
  std::string sha256_before, sha256_after;  // hashes of the fp32 weights
  Json machine;
  double seconds = 0;
  std::filesystem::path report;
};

// Runs the whole demo: trains a model (or reuses the finished run in `out`), compresses it,
// measures every variant, generates text with each, and writes report.html and report.json into
// `out`.
DemoResult run_demo(const DemoOptions& options, Executor& executor, Measurer& measurer);

// Bits per byte of the fp32 model over the entropy of the source; nullopt if either is unknown.
std::optional<double> floor_ratio(const DemoResult& result);

// {"model", "steps", "val_loss", "variants": [], "front": [], "report", …}
Json to_json(const DemoResult& result);
// The table of variants, for a terminal.
std::string to_table(const DemoResult& result);

}  // namespace hone::app
