// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace hone {

// Exact products of at least fp32, whatever scope the caller is in.
struct ExactScope {
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  at::NoTF32Guard no_tf32;
};

// In fp64 if it is in fp64, otherwise in fp32.
inline at::Tensor in_working_type(const at::Tensor& tensor) {
  return tensor.to(tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

}  // namespace hone
