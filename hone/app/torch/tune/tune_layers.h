// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>

#include "hone/core/file/json_io.h"

namespace hone::app {

struct TuneJob {
  std::filesystem::path model, space, out;
  std::string data;                        // a text, a folder of images, or "leaves"
  std::optional<std::uint64_t> seed = {};  // instead of search.seed
  int threads = 0;                         // of LibTorch; 0: usable_cpus()
  std::stop_token stop = {};  // requested: Error{Cancelled}; the search can go on later
};

struct TuneOutcome {
  Json document;     // layers.json
  std::string text;  // the same to read
  bool is_met = false;
};

// Searches replacements of the model's layers as the file `space` says (docs/guide-layers.md), and
// writes to the folder `out`: search.json, all evaluations; layers.json, the result; and, if there
// is a model that meets the goal, model/, its folder. A search that was interrupted goes on with
// the same arguments. Throws Error{InvalidArgument} for an `out` that is or touches the model or
// the data, or that has a search of another space, model, data or seed, and what
// tuner::read_tune_space(), tuner::make_groups() and open_tuned_model() throw.
TuneOutcome tune_layers(const TuneJob& job);

// Measures the model in job.out again, on the same data, and compares it with the limit that
// layers.json records. Throws Error{InvalidArgument} for other data and where no limit or no model
// is recorded; Error{NotFound} and Error{CorruptFile} for what is in the folder. Of the job, only
// `out`, `data`, `threads` and `stop` count.
TuneOutcome check_tuned(const TuneJob& job);

}  // namespace hone::app
