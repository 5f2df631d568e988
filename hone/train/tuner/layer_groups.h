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

// What a replacement of a layer has to choose. A parameter that the space does not have takes its
// default.
struct LayerPoint {
  nn::FactorMode mode = nn::FactorMode::LowRank;
  nn::Fit fit = nn::Fit::Svd;
  Index rank = 1, terms = 1;
};

// A Linear or Conv2d as the matrix that is factored, of each of its groups.
struct LayerShape {
  Index inputs = 0, outputs = 0, groups = 1;
  bool is_conv = false;

  Index numbers() const { return groups * inputs * outputs; }
  // The largest rank of which a pair of factors has fewer numbers than the matrix.
  Index largest_rank() const { return (inputs * outputs - 1) / (inputs + outputs); }
};
// Error{InvalidArgument} for a module of another type.
LayerShape shape_of(const torch::nn::Module& module);

// `point` is one of the layer's group.
LayerPoint read_layer_point(const tune::Point& point, const LayerShape& shape);

struct TuneGroups {
  std::vector<tune::LayerGroup> groups;
  std::vector<std::pair<std::string, std::string>> skipped;  // path, and a sentence that says why
};

// The layers of a model that the space selects, and the parameters of each. Layers that cannot be
// replaced are left out: those in no Slot, of another type, with parameters that others share, and,
// where ranks are automatic, those that are too small for one. Throws Error{InvalidArgument} that
// names the key, its line and the layer if a [[layers]] table selects nothing, or nothing that can
// be replaced, a layer that another table selects too, a depth-wise convolution, or a layer that
// cannot have a given rank, share of bytes or fit.
TuneGroups make_groups(torch::nn::Module& model, const TuneSpace& space);

}  // namespace hone::tuner
