// SPDX-License-Identifier: Apache-2.0
#include "hone/train/loss/unit_rows.h"

#include <ATen/ATen.h>

#include "hone/core/check.h"
#include "hone/train/exact_scope.h"

namespace hone::loss {
namespace {

using torch::Tensor;

constexpr double kLeastNorm = 1e-12;

}  // namespace

void check_rows(std::string_view op, const Tensor& features, const Tensor& targets) {
  HONE_REQUIRE(features.defined(), op, "The features are an undefined tensor.");
  HONE_REQUIRE(targets.defined(), op, "The targets are an undefined tensor.");
  HONE_CHECK(features.is_floating_point(), op, "features of a floating-point type",
             at::toString(features.scalar_type()));
  HONE_CHECK(features.dim() == 2 && features.numel() > 0, op,
             "features [rows, dim], neither of them 0", c10::str(features.sizes()));
  HONE_CHECK(targets.scalar_type() == at::kLong, op, "int64 targets",
             at::toString(targets.scalar_type()));
  HONE_CHECK(targets.dim() == 1 && targets.size(0) == features.size(0), op,
             concat("targets [", features.size(0), "]"), c10::str(targets.sizes()));
  HONE_CHECK(targets.device() == features.device(), op,
             concat("targets on ", features.device().str()), targets.device().str());
}

Tensor unit_rows(const Tensor& features) {
  const Tensor rows = in_working_type(features);
  const Tensor squares = rows.square().sum(1, /*keepdim=*/true);
  return rows / squares.clamp_min(kLeastNorm * kLeastNorm).sqrt();
}

Tensor positive_pairs(const Tensor& targets) {
  return targets.unsqueeze(1).eq(targets).fill_diagonal_(false);
}

}  // namespace hone::loss
