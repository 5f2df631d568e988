// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <optional>
#include <span>
#include <stop_token>

#include "hone/core/index.h"

namespace hone::task {

// Figures of how a network's features [images, channels] lie: a CPU tensor of any floating-point
// type with at least one image and one channel, all finite, computed in fp64. Labels are one for
// each image and not negative. Throws Error{InvalidArgument} for others.

// Fisher's ratio tr((S_w + ridge·tr(S_w)/channels·I)⁻¹ S_b) of the scatter between classes to the
// scatter within them: S_w = Σ_c Σ_{i in c} (x_i - μ_c)(x_i - μ_c)ᵀ and S_b = Σ_c n_c (μ_c - μ)
// (μ_c - μ)ᵀ. It does not change when all features are scaled. Empty for fewer than two classes,
// and where the regularized scatter within the classes is singular.
std::optional<double> fisher_ratio(const torch::Tensor& features, std::span<const Index> labels,
                                   double ridge = 1e-3);

// The share of images whose class is that of most of their min(neighbors, images - 1) nearest
// others by cosine similarity. Of classes with equally many, the one with the nearest image counts;
// of equally similar images, the first; a feature of zeros is similar to none. Empty for fewer than
// two images. Takes time that grows with the square of the images; throws Error{Cancelled} soon
// after stop, if not null, becomes true.
std::optional<double> neighbor_accuracy(const torch::Tensor& features,
                                        std::span<const Index> labels, Index neighbors,
                                        const std::stop_token& stop = {});

// The features on their first two principal components, fp64 [images, 2] with mean 0. Of each
// component, the entry with the largest magnitude is positive. A direction with less than 1e-12 of
// the variance of the first has values 0.
torch::Tensor principal_plane(const torch::Tensor& features);

}  // namespace hone::task
