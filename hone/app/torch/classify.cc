// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/classify.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "hone/app/torch/train_run.h"
#include "hone/core/check.h"
#include "hone/core/progress.h"
#include "hone/train/interop.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/task/vision/score_images.h"
#include "hone/train/task/vision/vision_model.h"

namespace hone::app {
namespace {

constexpr Index kBatch = 64, kWorkers = 2, kPrefetch = 4;
constexpr Index kKeptBytes = Index{1} << 30;

// Calls take(index of the image, its log-probabilities, its label).
template <class Take>
void score_part(const ClassifyOptions& options, task::VisionModel& model,
                const data::ImagePart& part, const Take& take) {
  const task::ImageBatches batches(part, model.image_shape(), model.stats, /*seed=*/0, model.cut());
  Progress progress("classifying", part.size(), "images");
  task::score_images(
      model.net, batches,
      {.count = part.size(), .batch = kBatch, .workers = kWorkers, .prefetch = kPrefetch},
      [&](Index first, const torch::Tensor& logits, const torch::Tensor& labels) {
        if (!at::isfinite(logits).all().item<bool>()) {
          fail_corrupt(options.model.string(), "The model computes NaN or infinite logits.");
        }
        const torch::Tensor logs = at::log_softmax(logits, 1, at::kDouble);
        for (Index row = 0; row < logs.size(0); ++row) {
          take(batches.index_of(first + row), logs[row], labels[row].item<std::int64_t>());
        }
        progress.update(first + logs.size(0));
        if (options.stop != nullptr && *options.stop) {
          throw Error(ErrorCategory::Cancelled, "[classify] The run was interrupted.");
        }
      });
}

// Maps labels of the data to the model's labels of the same names.
std::vector<Index> match_classes(const std::vector<std::string>& model,
                                 const std::vector<std::string>& data) {
  std::vector<Index> out;
  for (const std::string& name : data) {
    const auto found = std::find(model.begin(), model.end(), name);
    HONE_REQUIRE(found != model.end(), "data",
                 concat("The model does not know the class ", name, "."));
    out.push_back(found - model.begin());
  }
  return out;
}

ImageEvaluation evaluate(const ClassifyOptions& options, const std::filesystem::path& data) {
  prepare_libtorch(options.threads);
  task::VisionModel model = task::read_vision_model(options.model);
  const data::ImageShape shape = model.image_shape();
  const data::ImageCorpus corpus = data::load_images(data,
                                                     {.side = shape.height,
                                                      .memory_bytes = kKeptBytes,
                                                      .held_out_only = true,
                                                      .stop = options.stop},
                                                     libtorch_executor());
  const auto text = [](const data::ImageShape& s) {
    return concat(s.channels, " x ", s.height, " x ", s.width);
  };
  HONE_CHECK(corpus.shape == shape, "data",
             concat("images of ", text(shape), ", the size of the model's images"),
             text(corpus.shape));
  const std::vector<Index> label_of = match_classes(model.classes, corpus.classes);
  ImageEvaluation result;
  result.images = corpus.held_out.size();
  result.broken_images = corpus.broken;
  for (const std::string& name : corpus.classes) result.classes.push_back({.name = name});
  Index right = 0;
  score_part(options, model, corpus.held_out,
             [&](Index, const torch::Tensor& logs, std::int64_t label) {
               const Index target = label_of[static_cast<std::size_t>(label)];
               const bool is_right = logs.argmax().item<std::int64_t>() == target;
               result.loss -= logs[target].item<double>() / static_cast<double>(result.images);
               ClassAccuracy& own = result.classes[static_cast<std::size_t>(label)];
               ++own.images;
               own.right += is_right;
               right += is_right;
             });
  result.accuracy = static_cast<double>(right) / static_cast<double>(result.images);
  return result;
}

std::vector<ClassifiedImage> classify(const ClassifyOptions& options,
                                      const std::vector<std::filesystem::path>& images, Index top) {
  prepare_libtorch(options.threads);
  HONE_CHECK(top > 0, "top", "at least 1", top);
  task::VisionModel model = task::read_vision_model(options.model);
  top = std::min(top, static_cast<Index>(model.classes.size()));
  std::vector<ClassifiedImage> result(images.size());
  const data::ImageShape shape = model.image_shape();
  const data::ImagePart files = data::read_image_files(images, shape);
  const auto read = [&](Index index, std::span<std::uint8_t> planes) {
    try {
      files.read(index, planes);
    } catch (const Error& error) {
      result[static_cast<std::size_t>(index)].problem = error.what();
      std::ranges::fill(planes, std::uint8_t{0});
    }
  };
  score_part(options, model, {shape, std::vector<std::uint16_t>(images.size()), read},
             [&](Index index, const torch::Tensor& logs, std::int64_t) {
               ClassifiedImage& image = result[static_cast<std::size_t>(index)];
               image.path = images[static_cast<std::size_t>(index)];
               if (!image.problem.empty()) return;
               const auto [values, labels] = logs.topk(top);
               for (Index i = 0; i < top; ++i) {
                 const auto label = static_cast<std::size_t>(labels[i].item<std::int64_t>());
                 image.classes.push_back({model.classes[label], values[i].exp().item<double>()});
               }
             });
  return result;
}

}  // namespace

std::vector<ClassifiedImage> classify_images(const ClassifyOptions& options,
                                             const std::vector<std::filesystem::path>& images,
                                             Index top) {
  return memory::run_in_memory("classify", [&] { return classify(options, images, top); });
}

ImageEvaluation evaluate_images(const ClassifyOptions& options, const std::filesystem::path& data) {
  return memory::run_in_memory("classify", [&] { return evaluate(options, data); });
}

Json to_json(const std::vector<ClassifiedImage>& images) {
  Json list = Json::array();
  for (const ClassifiedImage& image : images) {
    Json classes = Json::array();
    for (const auto& [name, probability] : image.classes) {
      classes.push_back({{"name", name}, {"probability", probability}});
    }
    list.push_back({{"image", image.path.string()}, {"classes", std::move(classes)}});
    if (!image.problem.empty()) list.back()["error"] = image.problem;
  }
  return {{"images", std::move(list)}};
}

Json to_json(const ImageEvaluation& evaluation) {
  Json classes = Json::array();
  for (const auto& [name, images, right] : evaluation.classes) {
    classes.push_back({{"name", name}, {"images", images}, {"right", right}});
  }
  return {{"images", evaluation.images},
          {"broken_images", evaluation.broken_images},
          {"loss", evaluation.loss},
          {"accuracy", evaluation.accuracy},
          {"classes", std::move(classes)}};
}

}  // namespace hone::app
