// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/core/index.h"

namespace hone::paco {

// The parts of an image: where the salient cells of a feature map are, and the mean of the features
// around each. Features [B, C, H, W] are of any floating-point type. All is computed in fp32, for
// fp64 features in fp64, also inside an autocast scope. Nothing here waits for a CUDA device.

// How salient a cell is.
//  Attention  (Σ_c a_c F_c)·S with a the softmax over channels of the mean over cells and S the
//             softmax over cells of the mean over channels. Grows with the features only where
//             they are not negative.
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
  double fraction = 0.1;       // of Suppression::Fraction, in [0, 1]
  bool allow_repeats = false;  // what follows when all cells are suppressed: see find_peaks
};

struct Peaks {
  torch::Tensor cells;      // int64 [B, K, 2]: row and column
  torch::Tensor exhausted;  // int64 scalar: how many of them were taken from suppressed cells
};
// K times for each map of saliency [B, H, W], which stays as it is: the cell with the largest value
// that is not suppressed, of equal ones the first in row-major order; then the cells around it are
// suppressed. Where all are, the largest value of a cell that is not yet a peak or, with
// allow_repeats, cell (0, 0), be it a peak or not. NaN counts as 0, infinity as the largest finite
// number. Throws Error{InvalidArgument} for other ranks and types, for fewer cells than parts, and
// for options out of range.
Peaks find_peaks(const torch::Tensor& saliency, const SamplerOptions& options);

// The means of features [B, C, H, W] over the window around each of the peaks, int64 [B, K, 2],
// clipped to the map: [B, K, C], differentiable in the features. Throws Error{InvalidArgument} for
// other shapes and types and a window below 1; on the CPU also for peaks outside of the map, which
// elsewhere give NaN where no cell of the window is left.
torch::Tensor parts_at(const torch::Tensor& features, const torch::Tensor& peaks, Index window);

struct SampledParts {
  torch::Tensor parts;      // [B, K, C] as parts_at, differentiable
  torch::Tensor peaks;      // int64 [B, K, 2]
  torch::Tensor weight;     // [B]: the mean over the parts' windows, then over the parts, of the
                            // features' norm over channels; differentiable, by 0 where F = 0
  torch::Tensor exhausted;  // as Peaks
};
// Peaks that need no search.
struct GivenPeaks {
  torch::Tensor cells;     // int64 [B, K, 2]; undefined: none are given
  torch::Tensor is_given;  // bool [B]: whose peaks they are
};
// The peaks of the features' saliency, through which no gradient flows, and their parts. With
// given peaks, only the maps of the other images are searched, and the host waits for the device.
// Throws Error{InvalidArgument} as find_peaks and parts_at.
SampledParts sample_parts(const torch::Tensor& features, const SamplerOptions& options,
                          const GivenPeaks& given = {});

namespace composed {
// find_peaks by operators that run on every device: what CUDA tensors use, and the tests' oracle.
Peaks find_peaks(const torch::Tensor& saliency, const SamplerOptions& options);
}  // namespace composed

}  // namespace hone::paco
