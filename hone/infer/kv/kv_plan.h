// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/infer/kv/layer_group.h"
#include "hone/model_io/architecture.h"

namespace hone::infer {

// Where the layers of a model keep their keys and values. Layers with equal windows form a group.
// Groups have the order in which their windows first occur.
struct KvPlan {
  struct Place {
    Index group = 0, layer = 0;  // `layer` counts within the group
  };
  std::vector<LayerGroup> groups{};
  std::vector<Place> places{};  // by layer of the model
};

// `dtype` is the type of the cells. A window that spans the context of the model counts as no
// window.
KvPlan plan_kv(const model_io::Architecture& architecture, Dtype dtype);

// How the blocks of a group lie in memory. Keys and values must have the same size.
kernels::KvLayout layout_of(const LayerGroup& group);

}  // namespace hone::infer
