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

// A model whose layers are replaced, and the data that it is measured on. Samples are windows of a
// text or images, in an order that the seed decides: the first eighth, but not more than some
// dozens, is for calibration, the others are for qualities.
class TunedModel {
 public:
  virtual ~TunedModel() = default;

  virtual torch::nn::Module& module() = 0;
  virtual std::string_view sample_name() const = 0;  // "windows" or "images"
  virtual Index samples() const = 0;
  virtual Index calibration_samples() const = 0;
  // Perplexity needs a language model, accuracy a classifier.
  virtual bool has(tuner::QualityMetric metric) const = 0;
  // Minus the nats per token or image, or the share of images that are classified right, of these
  // samples; NaN if the model computes NaN.
  virtual double quality(tuner::QualityMetric metric, Index first, Index count) = 0;
  virtual void calibrate() = 0;  // a forward pass over the samples for calibration
  // What run_once() runs. Error{InvalidArgument} names the key.
  virtual void prepare_run(const tuner::SpeedRun& run) = 0;
  virtual void run_once() = 0;
  virtual std::string data_hash() const = 0;  // SHA-256
  // Writes the model as it is now as a folder that hone opens, when it is complete.
  virtual void write(const std::filesystem::path& folder) = 0;
};

struct TunedModelOptions {
  std::filesystem::path model;
  std::string data;
  std::uint64_t seed = 0;
  Index least_context = 0;    // of a language model, beyond the windows
  std::stop_token stop = {};  // requested: Error{Cancelled} at the next batch
};

// A classifier that `hone train vision` wrote, with held-out images or "leaves" as data, or a
// language model (task::open_initial_model) with a UTF-8 text or "stories", the embedded ones.
// Throws what opening them throws, and Error{InvalidArgument} for data without samples.
std::unique_ptr<TunedModel> open_tuned_model(const TunedModelOptions& options);
std::unique_ptr<TunedModel> open_tuned_lm(const TunedModelOptions& options);
std::unique_ptr<TunedModel> open_tuned_classifier(const TunedModelOptions& options);

// The number of the last samples, a quarter of those that are not for calibration, which no search
// sees: the model that it finds is measured on them. 0 where there would be fewer than two.
Index held_back_samples(const TunedModel& model);

// The samples for a repeat of a search: disjoint for each repeat, with sizes that differ by one at
// most, and a smaller resource takes the first ones of them. {first, count}; with fewer samples
// than repeats, some repeats have the same ones.
std::pair<Index, Index> samples_of_repeat(const TunedModel& model, Index repeat, Index repeats,
                                          double resource);

// How many of `samples` are for calibration: at most `most`, and none if there is only one sample.
Index count_calibration(Index samples, Index most);

// Error{Cancelled} if stop is not null and true.
void check_not_cancelled(const std::stop_token& stop);

}  // namespace hone::app
