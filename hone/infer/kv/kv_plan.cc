// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/kv_plan.h"

#include <algorithm>

#include "hone/core/check.h"

namespace hone::infer {

KvPlan plan_kv(const model_io::Architecture& architecture, Dtype dtype) {
  KvPlan plan;
  for (Index i = 0; i < architecture.layers; ++i) {
    const Index trained = architecture.window_of(i);
    const Index window = trained < architecture.context ? trained : 0;
    auto group = std::ranges::find(plan.groups, window, &LayerGroup::window);
    if (group == plan.groups.end()) {
      group = plan.groups.insert(group, {.layers = 0,
                                         .kv_heads = architecture.kv_heads,
                                         .key_dim = architecture.head_dim,
                                         .value_dim = architecture.head_dim,
                                         .dtype = dtype,
                                         .window = window});
    }
    plan.places.push_back({.group = group - plan.groups.begin(), .layer = group->layers++});
  }
  return plan;
}

kernels::KvLayout layout_of(const LayerGroup& group) {
  HONE_CHECK(group.key_dim == group.value_dim, "kv layout", "keys and values of one size",
             concat(group.key_dim, " and ", group.value_dim));
  return {.dtype = group.dtype,
          .layers = group.layers,
          .kv_heads = group.kv_heads,
          .head_dim = group.key_dim};
}

}  // namespace hone::infer
