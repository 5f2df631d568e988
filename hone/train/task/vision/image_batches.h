// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stop_token>
#include <vector>

#include "hone/data/image/augment.h"
#include "hone/data/image/image_corpus.h"

namespace hone::task {

// Mean and standard deviation of each channel, of values in [0, 1].
struct ChannelStats {
  std::vector<double> mean, std;
};
// Uses exact sums over all images. A constant channel has standard deviation 1. Throws
// Error{Cancelled} like data::check_not_stopped().
ChannelStats measure_channels(const data::ImagePart& part, const data::ImageShape& shape,
                              const std::stop_token& stop = {},
                              Executor& executor = serial_executor());

// The numbers of a batch: normalized images [views, count, channels, height, width], labels
// [count], and the source of each view's pixels [views, count].
struct ImageValues {
  Index first = 0, count = 0;
  std::vector<float> images;
  std::vector<std::int64_t> labels;
  std::vector<data::ViewGeometry> geometry;
};

// An endless sequence of images; each epoch draws its own order. Sample n of the run, including its
// augmentation, is a pure function of (seed, n).
class ImageBatches {
 public:
  // Every image has `views` views. The first of several views is neither occluded nor shuffled.
  // Augmented images must have 1 or 3 channels. Pixels of a cut beyond the image have the mean
  // color of `stats`.
  ImageBatches(const data::ImagePart& part, data::ImageShape shape, const ChannelStats& stats,
               std::uint64_t seed, data::AugmentOptions augmentation = {}, Index views = 1);

  // The shape of a view.
  const data::ImageShape& shape() const { return view_shape_; }
  Index images_per_epoch() const { return part_->size(); }
  // The index of the image of sample n.
  Index index_of(Index sample) const;
  // May be called from any thread.
  ImageValues make(Index first, Index count) const;

 private:
  data::View make_view(Index sample, Index view, const std::vector<std::uint8_t>& planes) const;
  void normalize(const data::Image& image, float* values) const;

  const data::ImagePart* part_;
  data::ImageShape shape_, view_shape_;
  std::vector<float> table_;  // value of each of 256 levels, by channel
  std::uint64_t seed_;
  data::AugmentOptions augmentation_;
  Index views_;
  data::PixelColor mean_{};
};

}  // namespace hone::task
