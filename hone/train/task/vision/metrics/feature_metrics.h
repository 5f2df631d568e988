// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <optional>
#include <span>
#include <stop_token>

#include "hone/core/index.h"

namespace hone::task {

// Metrics of a network's features [images, channels]: a CPU tensor of any floating-point type with
// at least one image and one channel, all finite, computed in fp64. There is one nonnegative label
// per image. Throws Error{InvalidArgument} for other arguments.

// Fisher's ratio tr((S_w + ridge·tr(S_w)/channels·I)⁻¹ S_b) of the scatter between classes to the
// scatter within classes.
//   S_w = Σ_c Σ_{i in c} (x_i - μ_c)(x_i - μ_c)ᵀ,  S_b = Σ_c n_c (μ_c - μ)(μ_c - μ)ᵀ
// It does not change when all features are scaled. Empty for fewer than two classes, and if the
// regularized scatter within classes is singular.
std::optional<double> fisher_ratio(const torch::Tensor& features, std::span<const Index> labels,
                                   double ridge = 1e-3);

// Returns the share of images whose class is the majority class of their min(neighbors, images - 1)
// nearest other images by cosine similarity. Between classes with equal counts, the class of the
// nearest image wins; between equally similar images, the first one. A feature of zeros is similar
// to none. Empty for fewer than two images. Time grows with the square of the images. Throws
// Error{Cancelled} soon after `stop`, if not null, becomes true.
std::optional<double> neighbor_accuracy(const torch::Tensor& features,
                                        std::span<const Index> labels, Index neighbors,
                                        const std::stop_token& stop = {});

// Projects the features to their first two principal components: fp64 [images, 2] with mean 0. In
// each component, the entry with the largest magnitude is positive. A direction with less than
// 1e-12 of the variance of the first one has values 0.
torch::Tensor principal_plane(const torch::Tensor& features);

}  // namespace hone::task
