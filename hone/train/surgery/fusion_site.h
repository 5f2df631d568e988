// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "hone/core/index.h"

namespace hone::nn {

// Neighboring operators of a model that one fused operator can replace.
struct FusionSite {
  std::string pattern;                   // "conv_bn_relu"
  std::vector<std::string> layers = {};  // paths, in the order of the computation
  std::string obstacle = {};             // why it cannot be fused; empty if it can
  Index operators = 0;                   // separate operators that become one
  bool channels_last = false;            // the layout in which the fused operator reads and writes
  // Both map the input of the first layer to the output of the last one. A residual is zeros.
  std::function<torch::Tensor(const torch::Tensor&)> separate = {}, fused = {};
  std::function<void()> apply = {}, undo = {};
};

// A module of which fuse() cannot see the data flow, and which therefore names its own sites. The
// first layer of a site must be the content of a Slot or an element of a Sequential.
class Fusible {
 public:
  virtual ~Fusible() = default;
  // Sites of this module, not of its children. `path` is that of the module, with a dot behind it,
  // or empty for the root. The functions are valid as long as the module.
  virtual std::vector<FusionSite> fusion_sites(const std::string& path) = 0;
};

}  // namespace hone::nn
