// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "hone/train/surgery/fusion_site.h"

namespace hone::nn {

// All sites of a model in the order of its layers: those of its Sequentials by a table of patterns,
// and those that Fusible modules name.
std::vector<FusionSite> fusion_sites(torch::nn::Module& model);

}  // namespace hone::nn
