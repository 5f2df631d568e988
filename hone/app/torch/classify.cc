// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/classify.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "hone/app/torch/score_part.h"
#include "hone/app/torch/train_run.h"
#include "hone/core/check.h"
#include "hone/train/memory/device_memory.h"

namespace hone::app {
namespace {

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
  const task::ImageScores scores = score_part(
      model, options.model, {shape, std::vector<std::uint16_t>(images.size()), read}, options.stop);
  const auto [values, labels] = at::log_softmax(scores.logits, 1, at::kDouble).topk(top);
  for (std::size_t i = 0; i < images.size(); ++i) {
    result[i].path = images[i];
    if (!result[i].problem.empty()) continue;
    const auto row = static_cast<Index>(i);
    for (Index k = 0; k < top; ++k) {
      const auto label = static_cast<std::size_t>(labels[row][k].item<std::int64_t>());
      result[i].classes.push_back({model.classes[label], values[row][k].exp().item<double>()});
    }
  }
  return result;
}

}  // namespace

std::vector<ClassifiedImage> classify_images(const ClassifyOptions& options,
                                             const std::vector<std::filesystem::path>& images,
                                             Index top) {
  return memory::run_in_memory("classify", [&] { return classify(options, images, top); });
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

}  // namespace hone::app
