// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/part_pictures.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "hone/core/check.h"
#include "hone/train/task/vision/part_boxes.h"
#include "hone/train/task/vision/score_images.h"

namespace hone::app {
namespace {

// What the values [channels, height, width] of a network's input were made from; one channel
// becomes gray.
data::Image to_image(const float* values, const data::ImageShape& shape,
                     const task::ChannelStats& stats) {
  data::Image image{shape.height, shape.width, {}};
  const auto plane = static_cast<std::size_t>(shape.height * shape.width);
  image.pixels.resize(3 * plane);
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    const std::size_t channel = shape.channels == 3 ? i % 3 : 0;
    const double value = values[channel * plane + i / 3] * stats.std[channel] + stats.mean[channel];
    image.pixels[i] = static_cast<std::uint8_t>(std::clamp(std::round(255 * value), 0.0, 255.0));
  }
  return image;
}

void append_evenly(std::vector<Index>& out, const std::map<Index, Index>& image_of, Index count) {
  std::vector<Index> all;
  for (const auto& [label, image] : image_of) all.push_back(image);
  for (Index i = 0; i < count; ++i) {
    out.push_back(all[static_cast<std::size_t>(i * std::ssize(all) / count)]);
  }
}

}  // namespace

std::vector<Index> choose_examples(std::span<const Index> labels,
                                   std::span<const Index> predictions, Index count) {
  std::map<Index, Index> wrong, right;  // the first image of each class
  for (std::size_t i = 0; i < labels.size(); ++i) {
    (predictions[i] == labels[i] ? right : wrong).try_emplace(labels[i], static_cast<Index>(i));
  }
  const Index rights = std::ssize(right);
  const Index wrongs = std::min(std::ssize(wrong), std::max(count / 2, count - rights));
  std::vector<Index> out;
  append_evenly(out, wrong, wrongs);
  append_evenly(out, right, std::min(rights, count - wrongs));
  return out;
}

std::vector<report::Picture> part_pictures(task::VisionModel& model, const data::ImagePart& part,
                                           const std::vector<Index>& indices,
                                           std::span<const Index> labels,
                                           std::span<const Index> predictions) {
  if (indices.empty()) return {};
  auto* const net = dynamic_cast<nn::ResNetImpl*>(model.net.get());
  HONE_REQUIRE(net != nullptr && model.parts, "parts", "The model has no parts.");
  const data::ImagePart chosen = part.select(indices);
  const task::ImageBatches batches(chosen, model.image_shape(), model.stats, /*seed=*/0,
                                   model.cut());
  const data::ImageShape& shape = batches.shape();
  const task::ImageValues values = batches.make(0, chosen.size());
  std::vector<std::vector<task::PartBox>> boxes;  // one image at a time: maps may be large
  for (const torch::Tensor& image : task::to_tensors(values, shape).front().split(1)) {
    boxes.push_back(task::find_part_boxes(*net, *model.parts, image).front());
  }
  std::vector<report::Picture> pictures(indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto place = static_cast<std::size_t>(batches.index_of(static_cast<Index>(i)));
    const auto index = static_cast<std::size_t>(indices[place]);
    const std::string& name = model.classes[static_cast<std::size_t>(labels[index])];
    report::Picture& picture = pictures[place];
    picture.name = name;
    picture.marked = predictions[index] != labels[index];
    picture.note =
        !picture.marked
            ? "right"
            : concat("wrong: ", model.classes[static_cast<std::size_t>(predictions[index])]);
    picture.width = shape.width;
    picture.height = shape.height;
    picture.png = data::encode_png(to_image(
        values.images.data() + static_cast<Index>(i) * shape.values(), shape, model.stats));
    for (const task::PartBox& box : boxes[i]) {
      picture.boxes.push_back(
          {box.left, box.top, box.width, box.height, concat(picture.boxes.size() + 1)});
    }
  }
  return pictures;
}

}  // namespace hone::app
