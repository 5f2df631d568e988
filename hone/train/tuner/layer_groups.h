// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/train/tuner/tune_space.h"
#include "hone/tune/search/layer_search.h"

namespace hone::tuner {

// The choices for a replacement of a layer. Parameters that are not in the space have defaults.
struct LayerPoint {
  nn::FactorMode mode = nn::FactorMode::LowRank;
  nn::Fit fit = nn::Fit::Svd;
  Index rank = 1, terms = 1;
};

// A Linear or Conv2d as the matrix to factor; a Conv2d has one matrix per group.
struct LayerShape {
  Index inputs = 0, outputs = 0, groups = 1;
  bool is_conv = false;

  Index numbers() const { return groups * inputs * outputs; }
  // Largest rank at which the factors are smaller than the matrix.
  Index largest_rank() const { return (inputs * outputs - 1) / (inputs + outputs); }
};
// Throws Error{InvalidArgument} for a module of another type.
LayerShape shape_of(const torch::nn::Module& module);

// `point` must be a point of the layer's group.
LayerPoint read_layer_point(const tune::Point& point, const LayerShape& shape);

struct TuneGroups {
  std::vector<tune::LayerGroup> groups;
  std::vector<std::pair<std::string, std::string>> skipped;  // path, and a sentence that says why
};

// Returns the layers of a model that the space selects, and the parameters of each. Skips layers
// that cannot be replaced: layers outside of Slots, of another type, or with shared parameters. If
// ranks are automatic, also skips layers that are too small. Throws Error{InvalidArgument} that
// names the key, its line and the layer if a [[layers]] table selects nothing, or nothing that can
// be replaced. Also throws it for a layer that another table selects, a depth-wise convolution, or
// a layer that cannot have a given rank, share of bytes or fit.
TuneGroups make_groups(torch::nn::Module& model, const TuneSpace& space);

}  // namespace hone::tuner
