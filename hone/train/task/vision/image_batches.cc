// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/image_batches.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <stop_token>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/core/philox.h"
#include "hone/data/permute.h"

namespace hone::task {
namespace {

// The stream of a seed that the order comes from; data::augment() has its own.
constexpr std::uint32_t kImageOrderStream = 3;

// How many values of a channel have each level.
using LevelCounts = std::array<std::uint64_t, 256>;

// Planes [channels, height, width] as a picture; one channel becomes gray.
data::Image to_image(const std::vector<std::uint8_t>& planes, const data::ImageShape& shape) {
  data::Image image{shape.height, shape.width, {}};
  const auto plane = static_cast<std::size_t>(shape.height * shape.width);
  image.pixels.resize(3 * plane);
  for (std::size_t c = 0; c < 3; ++c) {
    const std::uint8_t* const from = planes.data() + (shape.channels == 1 ? 0 : c * plane);
    for (std::size_t i = 0; i < plane; ++i) image.pixels[3 * i + c] = from[i];
  }
  return image;
}

}  // namespace

ChannelStats measure_channels(const data::ImagePart& part, const data::ImageShape& shape,
                              const std::stop_token& stop, Executor& executor) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  const auto plane = static_cast<std::size_t>(shape.height * shape.width);
  std::vector<LevelCounts> counts(channels);
  std::mutex mutex;
  constexpr Index kPiece = 64;
  executor.parallel_for(part.size(), kPiece, [&](Index begin, Index end, int) {
    std::vector<LevelCounts> own(channels);
    std::vector<std::uint8_t> planes(channels * plane);
    for (Index i = begin; i < end; ++i) {
      data::check_not_stopped(part, stop);
      part.read(i, planes);
      for (std::size_t at = 0; at < planes.size(); ++at) ++own[at / plane][planes[at]];
    }
    const std::lock_guard lock(mutex);
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t level = 0; level < own[c].size(); ++level) counts[c][level] += own[c][level];
    }
  });
  ChannelStats stats;
  const double all = static_cast<double>(plane) * static_cast<double>(part.size());
  for (const LevelCounts& levels : counts) {
    double sum = 0, squares = 0;
    for (int level = 0; level < 256; ++level) {
      const double value = level / 255.0;
      const auto number = static_cast<double>(levels[static_cast<std::size_t>(level)]);
      sum += number * value;
      squares += number * value * value;
    }
    const double mean = sum / all, variance = squares / all - mean * mean;
    stats.mean.push_back(mean);
    stats.std.push_back(variance > 1e-12 ? std::sqrt(variance) : 1);
  }
  return stats;
}

ImageBatches::ImageBatches(const data::ImagePart& part, data::ImageShape shape,
                           const ChannelStats& stats, std::uint64_t seed,
                           data::AugmentOptions augmentation, Index views)
    : part_(&part),
      shape_(shape),
      view_shape_(shape),
      seed_(seed),
      augmentation_(std::move(augmentation)),
      views_(views) {
  HONE_CHECK(part.size() > 0, "images", "at least one", part.size());
  HONE_CHECK(views > 0, "images", "at least one view", views);
  data::check_augment(augmentation_);
  HONE_CHECK(shape.channels == 1 || shape.channels == 3 || data::changes_nothing(augmentation_),
             "augmentation", "images of 1 or 3 channels", shape.channels);
  if (augmentation_.side > 0) {
    view_shape_.height = augmentation_.side;
    view_shape_.width = augmentation_.side;
  }
  for (std::size_t c = 0; c < stats.mean.size(); ++c) {
    for (int level = 0; level < 256; ++level) {
      table_.push_back(static_cast<float>((level / 255.0 - stats.mean[c]) / stats.std[c]));
    }
  }
  for (std::size_t c = 0; c < 3; ++c) {
    const double mean = stats.mean[std::min(c, stats.mean.size() - 1)];
    mean_[c] = static_cast<std::uint8_t>(std::clamp(std::round(255 * mean), 0.0, 255.0));
  }
}

Index ImageBatches::index_of(Index sample) const {
  const auto epoch = static_cast<std::uint64_t>(sample / part_->size());
  const PhiloxBlock block =
      philox(seed_, {static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32),
                     kImageOrderStream, 0});
  return data::permute(sample % part_->size(), part_->size(),
                       std::uint64_t{block[0]} << 32 | block[1]);
}

data::View ImageBatches::make_view(Index sample, Index view,
                                   const std::vector<std::uint8_t>& planes) const {
  data::AugmentOptions options = augmentation_;
  if (views_ > 1 && view == 0) options.occlude = options.shuffle = 0;
  return data::augment(
      to_image(planes, shape_), options,
      {.seed = seed_, .epoch = sample / part_->size(), .index = index_of(sample), .view = view},
      mean_);
}

void ImageBatches::normalize(const data::Image& image, float* values) const {
  const Index plane = image.height * image.width;
  for (Index at = 0; at < view_shape_.values(); ++at) {
    const auto c = static_cast<std::size_t>(at / plane);
    *values++ = table_[256 * c + image.pixels[static_cast<std::size_t>(3 * (at % plane)) + c]];
  }
}

ImageValues ImageBatches::make(Index first, Index count) const {
  HONE_TRACE_ZONE("read images", {"images", count});
  ImageValues out{first, count, {}, {}, {}};
  const auto size = static_cast<std::size_t>(view_shape_.values());
  out.images.resize(static_cast<std::size_t>(views_ * count) * size);
  out.geometry.resize(static_cast<std::size_t>(views_ * count));
  std::vector<std::uint8_t> planes(static_cast<std::size_t>(shape_.values()));
  const std::size_t plane = planes.size() / static_cast<std::size_t>(shape_.channels);
  for (Index i = 0; i < count; ++i) {
    const Index index = index_of(first + i);
    out.labels.push_back(part_->label(index));
    part_->read(index, planes);
    for (Index view = 0; view < views_; ++view) {
      const auto at = static_cast<std::size_t>(view * count + i);
      float* const values = out.images.data() + at * size;
      if (data::changes_nothing(augmentation_)) {
        for (std::size_t k = 0; k < size; ++k) values[k] = table_[k / plane * 256 + planes[k]];
        out.geometry[at].height = shape_.height;
        out.geometry[at].width = shape_.width;
        continue;
      }
      data::View made = make_view(first + i, view, planes);
      normalize(made.image, values);
      out.geometry[at] = std::move(made.geometry);
    }
  }
  return out;
}

}  // namespace hone::task
