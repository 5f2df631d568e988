// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/image_batches.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "hone/core/trace.h"
#include "hone/data/permute.h"

namespace hone::task {
namespace {

// Philox streams, one for each kind of draw.
constexpr std::uint32_t kOrderStream = 3;
constexpr std::uint64_t kAugmentStream = std::uint64_t{1} << 62;

}  // namespace

ChannelStats measure_channels(const data::ImagePart& part, const data::ImageShape& shape) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  const auto plane = static_cast<std::size_t>(shape.height * shape.width);
  std::vector<std::array<std::uint64_t, 256>> counts(channels);
  std::vector<std::uint8_t> planes(channels * plane);
  for (Index i = 0; i < part.size(); ++i) {
    part.read(i, planes);
    for (std::size_t at = 0; at < planes.size(); ++at) ++counts[at / plane][planes[at]];
  }
  ChannelStats stats;
  const double all = static_cast<double>(plane) * static_cast<double>(part.size());
  for (const auto& levels : counts) {
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
                           const ChannelStats& stats, std::uint64_t seed, Augmentation augmentation)
    : part_(&part), shape_(shape), seed_(seed), augmentation_(augmentation) {
  HONE_CHECK(part.size() > 0, "images", "at least one", part.size());
  for (std::size_t c = 0; c < stats.mean.size(); ++c) {
    for (int level = 0; level < 256; ++level) {
      table_.push_back(static_cast<float>((level / 255.0 - stats.mean[c]) / stats.std[c]));
    }
  }
}

Index ImageBatches::index_of(Index sample) const {
  const auto epoch = static_cast<std::uint64_t>(sample / part_->size());
  const PhiloxBlock block =
      philox(seed_, {static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32),
                     kOrderStream, 0});
  return data::permute(sample % part_->size(), part_->size(),
                       std::uint64_t{block[0]} << 32 | block[1]);
}

void ImageBatches::fill(Index sample, std::vector<std::uint8_t>& planes, float* values) const {
  const Index height = shape_.height, width = shape_.width;
  part_->read(index_of(sample), planes);
  PhiloxStream random(seed_, kAugmentStream | static_cast<std::uint64_t>(sample));
  const auto shift = [&] {
    const auto span = static_cast<std::uint32_t>(2 * augmentation_.crop_padding + 1);
    return static_cast<Index>(random.below(span)) - augmentation_.crop_padding;
  };
  const Index down = shift(), right = shift();
  const bool flip = augmentation_.flip && random.below(2) == 1;
  for (Index row = 0; row < shape_.channels * height; ++row) {
    const float* const table = table_.data() + row / height * 256;
    const Index y = row % height + down;
    const std::uint8_t* const from = planes.data() + (row / height * height + y) * width;
    for (Index column = 0; column < width; ++column) {
      const Index x = (flip ? width - 1 - column : column) + right;
      const bool inside = y >= 0 && y < height && x >= 0 && x < width;
      *values++ = inside ? table[from[x]] : 0;
    }
  }
}

ImageValues ImageBatches::make(Index first, Index count) const {
  HONE_TRACE_ZONE("read images", {"images", count});
  ImageValues out{first, count, {}, {}};
  const auto size = static_cast<std::size_t>(shape_.values());
  out.images.resize(static_cast<std::size_t>(count) * size);
  std::vector<std::uint8_t> planes(size);
  for (Index i = 0; i < count; ++i) {
    out.labels.push_back(part_->label(index_of(first + i)));
    fill(first + i, planes, out.images.data() + static_cast<std::size_t>(i) * size);
  }
  return out;
}

}  // namespace hone::task
