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
  std::optional<std::uint64_t> seed = {};  // overrides search.seed
  int threads = 0;                         // LibTorch threads; 0: usable_cpus()
  std::stop_token stop = {};  // requested: Error{Cancelled}; the search can be continued
};

struct TuneOutcome {
  Json document;     // layers.json
  std::string text;  // the document as readable text
  bool is_met = false;
};

// Searches for replacements of the model's layers, as specified by the file `space`
// (docs/guide-layers.md). Writes to the folder `out`: search.json with all evaluations, layers.json
// with the result and, if a model meets the goal, its folder model/. The same arguments continue an
// interrupted search.
// Throws Error{InvalidArgument} if `out` overlaps the model or the data, or has a search with
// another space, model, data or seed. Also throws what tuner::read_tune_space(),
// tuner::make_groups() and open_tuned_model() throw.
TuneOutcome tune_layers(const TuneJob& job);

// Measures the model in job.out again and compares it with the limit that layers.json records. The
// document has other_data if job.data is not the recorded data. Throws Error{InvalidArgument} if no
// limit or no model is recorded, and Error{NotFound} or Error{CorruptFile} for what is in the
// folder. Uses only `out`, `data`, `threads` and `stop` of the job.
TuneOutcome check_tuned(const TuneJob& job);

}  // namespace hone::app
