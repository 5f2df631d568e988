// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/app/torch/held_out_images.h"
#include "hone/app/torch/score_part.h"
#include "hone/app/torch/tune/tuned_model.h"
#include "hone/core/check.h"
#include "hone/core/file/sha256.h"
#include "hone/train/task/vision/score_images.h"

namespace hone::app {
namespace {

using torch::Tensor;

constexpr Index kCalibrationImages = 512;

// SHA-256 of the sizes, labels and pixels.
std::string hash_of(const data::ImagePart& part, const data::ImageShape& shape) {
  std::vector<std::uint8_t> planes(static_cast<std::size_t>(shape.values()));
  std::string hashes = concat(shape.channels, " ", shape.height, " ", shape.width, "\n");
  for (Index i = 0; i < part.size(); ++i) {
    part.read(i, planes);
    hashes += concat(part.label(i), " ", sha256_hex(std::as_bytes(std::span(planes))), "\n");
  }
  return sha256_hex_of_text(hashes);
}

class TunedClassifier final : public TunedModel {
 public:
  explicit TunedClassifier(const TunedModelOptions& options)
      : model_(task::read_vision_model(options.model)),
        corpus_(load_held_out(options.data, model_, options.stop)),
        batches_(corpus_.held_out, model_.image_shape(), model_.stats, options.seed, model_.cut()),
        labels_(labels_of(corpus_, corpus_.held_out, model_.classes)),
        batch_(score_batch(model_.net->spec())),
        hash_(hash_of(corpus_.held_out, corpus_.shape)),
        stop_(options.stop) {
    model_.net->eval();
  }

  torch::nn::Module& module() override { return *model_.net; }
  std::string_view sample_name() const override { return "images"; }
  Index samples() const override { return corpus_.held_out.size(); }
  Index calibration_samples() const override {
    return count_calibration(samples(), kCalibrationImages);
  }
  bool has(tuner::QualityMetric metric) const override {
    return metric != tuner::QualityMetric::Perplexity;
  }

  double quality(tuner::QualityMetric metric, Index first, Index count) override {
    double sum = 0;
    for_each_batch(first, count, [&](Index begin, const Tensor& images) {
      const Tensor logits = model_.net->forward(images).to(at::kDouble);
      if (!at::isfinite(logits).all().item<bool>()) {
        sum = std::numeric_limits<double>::quiet_NaN();
        return;
      }
      const Tensor labels = at::empty({logits.size(0)}, at::kLong);
      for (Index i = 0; i < logits.size(0); ++i) {
        labels.data_ptr<std::int64_t>()[i] =
            labels_[static_cast<std::size_t>(batches_.index_of(begin + i))];
      }
      sum += metric == tuner::QualityMetric::Accuracy
                 ? logits.argmax(1).eq(labels).sum().item<double>()
                 : at::log_softmax(logits, 1).gather(1, labels.unsqueeze(1)).sum().item<double>();
    });
    return sum / static_cast<double>(count);
  }

  void calibrate() override {
    for_each_batch(0, std::max<Index>(1, calibration_samples()),
                   [&](Index, const Tensor& images) { model_.net->forward(images); });
  }

  void prepare_run(const tuner::SpeedRun& run) override {
    HONE_REQUIRE(!run.tokens, "speed.tokens", "The model is a classifier, whose runs have images.");
    const Index count = std::min(run.batch, samples());
    const Tensor images = images_of(0, count);
    run_images_ = images.repeat({(run.batch + count - 1) / count, 1, 1, 1})
                      .narrow(0, 0, run.batch)
                      .contiguous();
  }
  void run_once() override {
    const torch::NoGradGuard no_grad;
    model_.net->forward(run_images_);
  }

  std::string data_hash() const override { return hash_; }

  void write(const std::filesystem::path& folder) override {
    task::write_vision_model(folder, model_);
  }

 private:
  Tensor images_of(Index first, Index count) const {
    return task::to_tensors(batches_.make(first, count), batches_.shape())[0];
  }

  // Calls take(first sample, images).
  template <class Take>
  void for_each_batch(Index first, Index count, const Take& take) {
    const torch::NoGradGuard no_grad;
    for (Index begin = first; begin < first + count; begin += batch_) {
      check_not_cancelled(stop_);
      take(begin, images_of(begin, std::min(batch_, first + count - begin)));
    }
  }

  task::VisionModel model_;
  data::ImageCorpus corpus_;
  task::ImageBatches batches_;
  std::vector<Index> labels_;
  Index batch_;
  std::string hash_;
  std::stop_token stop_;
  Tensor run_images_;
};

}  // namespace

std::unique_ptr<TunedModel> open_tuned_classifier(const TunedModelOptions& options) {
  return std::make_unique<TunedClassifier>(options);
}

}  // namespace hone::app
