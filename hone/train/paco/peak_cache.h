// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"
#include "hone/data/image/augment_geometry.h"

namespace hone::paco {

// Which images a batch of two views shows, and where the pixels of the views come from.
struct ShownImages {
  std::vector<Index> images;                 // their indices; empty: not known
  std::vector<data::ViewGeometry> geometry;  // [2, images]: of the first views, of the second
};

// The size of a map over a view: each cell covers an equal share of its pixels.
struct MapSize {
  Index rows = 0, columns = 0;
};

// The cells of peaks that are known before a map is searched.
struct KnownPeaks {
  torch::Tensor cells1, cells2;  // int64 [batch, parts, 2] in both views; 0 where not known
  torch::Tensor is_known;        // bool [batch]
};

// The peaks of images for several visits. An image's visits 0, refresh_every, 2 refresh_every, …
// keep where the peaks of its first view are in the image; on the visits between, both of its views
// have them there. Where that cannot be (a peak is outside of a view or where the view is erased,
// or two peaks are in one cell), the peaks of that visit are not known, and those that are kept
// stay.
//
// Buffers: `points` fp64 [images, parts, 2], column and row in pixels of the image; `ages` int64
// [images], visits since they were kept, modulo refresh_every; `counts` int64 [2], how often
// an image's peaks had to be searched, and how often they were known. All are on the CPU. An image
// that is in a batch twice has one visit.
class PeakCacheImpl : public torch::nn::Module {
 public:
  PeakCacheImpl(Index images, Index parts, Index refresh_every);

  // What is known of this batch, whose maps have this size. Error{InvalidArgument} for buffers that
  // are not on the CPU, images out of range, and geometry that is not that of two views of each.
  KnownPeaks recall(const ShownImages& batch, MapSize map) const;
  // After recall(): keeps `cells`, int64 [batch, parts, 2], those of the first views, of images
  // whose turn it is, and counts the visit.
  void end_visit(const ShownImages& batch, MapSize map, const KnownPeaks& known,
                 const torch::Tensor& cells);
  // {"refresh_every", "detections", "reused"}: the last two are `counts`.
  Json report() const;

  torch::Tensor points, ages, counts;

 private:
  Index refresh_every_;
};
TORCH_MODULE(PeakCache);

}  // namespace hone::paco
