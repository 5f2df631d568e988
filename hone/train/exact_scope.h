// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace hone {

// In this scope, products are exact to at least fp32, whatever the caller's autocast and TF32
// settings.
struct ExactScope {
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  at::NoTF32Guard no_tf32;
};

// Converts to fp32, except that fp64 stays fp64.
inline at::Tensor in_working_type(const at::Tensor& tensor) {
  return tensor.to(tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

}  // namespace hone
