// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "hone/data/image/image_corpus.h"

namespace hone::task {

// Mean and standard deviation of each channel, of values in [0, 1].
struct ChannelStats {
  std::vector<double> mean, std;
};
// Exact sums over all images; a channel of one value has standard deviation 1.
ChannelStats measure_channels(const data::ImagePart& part, const data::ImageShape& shape);

struct Augmentation {
  Index crop_padding = 0;  // shifts of up to this many pixels each way; uncovered pixels are 0
  bool flip = false;       // left to right, one image in two
};

// The numbers of a batch: images [count, channels, height, width] normalized, labels [count].
struct ImageValues {
  Index first = 0, count = 0;
  std::vector<float> images;
  std::vector<std::int64_t> labels;
};

// An endless sequence of images; each epoch draws its own order. Sample n of the run, including its
// augmentation, is a pure function of (seed, n).
class ImageBatches {
 public:
  ImageBatches(const data::ImagePart& part, data::ImageShape shape, const ChannelStats& stats,
               std::uint64_t seed, Augmentation augmentation = {});

  const data::ImageShape& shape() const { return shape_; }
  Index images_per_epoch() const { return part_->size(); }
  // The index of the image of sample n.
  Index index_of(Index sample) const;
  // May be called from any thread.
  ImageValues make(Index first, Index count) const;

 private:
  void fill(Index sample, std::vector<std::uint8_t>& planes, float* values) const;

  const data::ImagePart* part_;
  data::ImageShape shape_;
  std::vector<float> table_;  // value of each of 256 levels, by channel
  std::uint64_t seed_;
  Augmentation augmentation_;
};

}  // namespace hone::task
