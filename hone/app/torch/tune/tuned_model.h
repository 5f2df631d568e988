// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "hone/core/index.h"
#include "hone/train/tuner/tune_space.h"

namespace hone::app {

// A model whose layers are replaced, and the data on which it is measured. Samples are windows of a
// text or images, in an order that depends on the seed. The first eighth, but at most some dozens,
// is for calibration. The others are for measuring quality.
class TunedModel {
 public:
  virtual ~TunedModel() = default;

  virtual torch::nn::Module& module() = 0;
  virtual std::string_view sample_name() const = 0;  // "windows" or "images"
  virtual Index samples() const = 0;
  virtual Index calibration_samples() const = 0;
  // Perplexity needs a language model, accuracy a classifier.
  virtual bool has(tuner::QualityMetric metric) const = 0;
  // The quality on these samples: minus the nats per token or image, or the share of images that
  // are classified correctly. NaN if the model computes NaN.
  virtual double quality(tuner::QualityMetric metric, Index first, Index count) = 0;
  virtual void calibrate() = 0;  // a forward pass over the samples for calibration
  // Prepares what run_once() runs. Throws Error{InvalidArgument} that names the key.
  virtual void prepare_run(const tuner::SpeedRun& run) = 0;
  virtual void run_once() = 0;
  virtual std::string data_hash() const = 0;  // SHA-256
  // Writes the current model to a folder that hone can open. The folder appears when it is
  // complete.
  virtual void write(const std::filesystem::path& folder) = 0;
};

struct TunedModelOptions {
  std::filesystem::path model;
  std::string data;
  std::uint64_t seed = 0;
  Index least_context = 0;    // context that a language model needs besides windows
  std::stop_token stop = {};  // requested: Error{Cancelled} at the next batch
};

// Opens a classifier that `hone train vision` wrote, with held-out images or "leaves" as data. Or
// opens a language model (task::open_initial_model), with a UTF-8 text or the embedded "stories".
// Throws what opening them throws, and Error{InvalidArgument} for data without samples.
std::unique_ptr<TunedModel> open_tuned_model(const TunedModelOptions& options);
std::unique_ptr<TunedModel> open_tuned_lm(const TunedModelOptions& options);
std::unique_ptr<TunedModel> open_tuned_classifier(const TunedModelOptions& options);

// The number of samples at the end that no search sees. The model that a search finds is measured
// on them. They are a quarter of the samples that are not for calibration, or none if that is less
// than two.
Index held_back_samples(const TunedModel& model);

// Returns {first, count}: the samples for a repeat of a search. Repeats have disjoint samples, and
// their counts differ by at most one. With fewer samples than repeats, some repeats have the same
// ones. A smaller `resource` uses only the first samples of the repeat.
std::pair<Index, Index> samples_of_repeat(const TunedModel& model, Index repeat, Index repeats,
                                          double resource);

// How many of `samples` are for calibration: at most `most`, and none if there is only one sample.
Index count_calibration(Index samples, Index most);

// Throws Error{Cancelled} if a stop is requested.
void check_not_cancelled(const std::stop_token& stop);

}  // namespace hone::app
