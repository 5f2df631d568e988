// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"
#include "hone/data/image/augment_geometry.h"

namespace hone::paco {

// The images that a batch of two views shows, and the sources of the views' pixels.
struct ShownImages {
  std::vector<Index> images;                 // their indices; empty: not known
  std::vector<data::ViewGeometry> geometry;  // [2, images]: first views, then second views
};

// The size of a map over a view: each cell covers an equal share of its pixels.
struct MapSize {
  Index rows = 0, columns = 0;
};

// The cells of peaks that are known before a map is searched.
struct KnownPeaks {
  torch::Tensor cells1, cells2;  // int64 [batch, parts, 2] in both views; 0 if not known
  torch::Tensor is_known;        // bool [batch]
};

// Keeps the peaks of images for several visits. Visits 0, refresh_every, 2 refresh_every, … of an
// image store the positions of the first view's peaks in the image. The visits between use these
// positions for both views. If a peak is outside of a view or in its erased area, or if two peaks
// share a cell, the peaks of that visit are unknown. The stored peaks are then kept.
//
// Buffers: `points` fp64 [images, parts, 2], column and row in pixels of the image; `ages` int64
// [images], visits since the peaks were stored, modulo refresh_every; `counts` int64 [2], the
// number of searches and of reuses of an image's peaks. All are on the CPU. A duplicate image in a
// batch counts as one visit.
class PeakCacheImpl : public torch::nn::Module {
 public:
  PeakCacheImpl(Index images, Index parts, Index refresh_every);

  // Returns the known peaks of this batch, whose maps have this size. Throws Error{InvalidArgument}
  // for buffers that are not on the CPU, images out of range, and geometry that does not have two
  // views per image.
  KnownPeaks recall(const ShownImages& batch, MapSize map) const;
  // Call it after recall(). Stores `cells` of the first views, int64 [batch, parts, 2], for images
  // that are due, and counts the visit.
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
