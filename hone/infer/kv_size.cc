// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv_size.h"

#include <algorithm>

#include "hone/infer/kv/kv_plan.h"

namespace hone::infer {

std::string_view name_of(KvDtype dtype) {
  if (dtype == KvDtype::Int8) return "int8";
  return dtype == KvDtype::Float16 ? "f16" : "f32";
}

Dtype cell_dtype(KvDtype dtype) {
  if (dtype == KvDtype::Int8) return Dtype::Int8;
  return dtype == KvDtype::Float16 ? Dtype::Float16 : Dtype::Float32;
}

Index kv_cache_bytes(const model_io::Architecture& architecture, KvDtype dtype, Index tokens) {
  return kv_bytes(plan_kv(architecture, cell_dtype(dtype)).groups, tokens,
                  std::max<Index>(tokens - 1, 0));
}

Index kv_token_bytes(const model_io::Architecture& architecture, KvDtype dtype) {
  return kv_token_bytes(plan_kv(architecture, cell_dtype(dtype)).groups);
}

}  // namespace hone::infer
