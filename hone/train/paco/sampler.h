// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/core/index.h"

namespace hone::paco {

// Parts of an image: the salient cells of a feature map, and the mean of the features around each
// cell. Features [B, C, H, W] have any floating-point type. Computes in fp32, and in fp64 for fp64
// features, also inside an autocast scope. Does not wait for a CUDA device.

// The salience of a cell.
//  Attention  (Σ_c a_c F_c)·S, where a is the softmax over channels of the mean over cells, and S
//             is the softmax over cells of the mean over channels. Grows with the features only if
//             they are nonnegative.
//  Norm       the Euclidean norm over channels, for features of both signs.
enum class Saliency { Attention, Norm };

// How far around a peak no other peak is taken: half a window, ⌊window / 2⌋ cells in both
// directions, or a fraction of the map, ⌊fraction·H⌋ rows and ⌊fraction·W⌋ columns.
enum class Suppression { Window, Fraction };

struct SamplerOptions {
  Index parts = 4;   // K
  Index window = 5;  // side in cells; an even side acts as the next odd one, 2·⌊window / 2⌋ + 1
  Saliency saliency = Saliency::Attention;
  Suppression suppression = Suppression::Window;
  double fraction = 0.1;       // for Suppression::Fraction, in [0, 1]
  bool allow_repeats = false;  // behavior if all cells are suppressed: see find_peaks
};

struct Peaks {
  torch::Tensor cells;      // int64 [B, K, 2]: row and column
  torch::Tensor exhausted;  // int64 scalar: number of peaks that were taken from suppressed cells
};
// For each map of saliency [B, H, W], K times: takes the cell with the largest value that is not
// suppressed, and then suppresses the cells around it. Ties select the first cell in row-major
// order. If all cells are suppressed, takes the largest value of a cell that is not yet a peak or,
// with allow_repeats, cell (0, 0), even if it is a peak. NaN counts as 0, infinity as the largest
// finite number. Does not modify saliency. Throws Error{InvalidArgument} for other ranks and types,
// for fewer cells than parts, and for options out of range.
Peaks find_peaks(const torch::Tensor& saliency, const SamplerOptions& options);

// Returns the means [B, K, C] of features [B, C, H, W] over the window around each of the peaks,
// int64 [B, K, 2], clipped to the map. Differentiable in the features. Throws
// Error{InvalidArgument} for other shapes and types and a window below 1. Peaks outside of the map
// also throw on the CPU; on other devices they result in NaN if the window is empty.
torch::Tensor parts_at(const torch::Tensor& features, const torch::Tensor& peaks, Index window);

struct SampledParts {
  torch::Tensor parts;      // [B, K, C] as parts_at, differentiable
  torch::Tensor peaks;      // int64 [B, K, 2]
  torch::Tensor weight;     // [B]: mean over the parts, of the mean over a part's window, of the
                            // features' norm over channels; its gradient is 0 at F = 0
  torch::Tensor exhausted;  // as Peaks
};
// Peaks that need no search.
struct GivenPeaks {
  torch::Tensor cells;     // int64 [B, K, 2]; undefined: none are given
  torch::Tensor is_given;  // bool [B]: images with given peaks
};
// Returns the peaks of the features' saliency, through which no gradient flows, and their parts.
// With given peaks, searches only the maps of the other images, and waits for the device. Throws
// Error{InvalidArgument} like find_peaks() and parts_at().
SampledParts sample_parts(const torch::Tensor& features, const SamplerOptions& options,
                          const GivenPeaks& given = {});

namespace composed {
// Implements find_peaks with operators that run on every device. Used for CUDA tensors and as the
// reference for tests.
Peaks find_peaks(const torch::Tensor& saliency, const SamplerOptions& options);
}  // namespace composed

}  // namespace hone::paco
