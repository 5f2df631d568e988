// SPDX-License-Identifier: Apache-2.0
#include "hone/train/paco/matching.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/train/interop.h"

namespace hone::paco {
namespace {

using torch::Tensor;

constexpr double kLeastNorm = 1e-12;

Tensor unit_rows(const Tensor& parts) {
  const Tensor rows = parts.detach().to(at::kDouble);
  return rows / rows.square().sum(2, /*keepdim=*/true).sqrt_().clamp_min_(kLeastNorm);
}

void check_costs(const char* op, const Tensor& costs) {
  HONE_CHECK(costs.defined() && costs.scalar_type() == at::kDouble, op, "fp64 costs",
             costs.defined() ? at::toString(costs.scalar_type()) : "an undefined tensor");
  HONE_CHECK(costs.dim() == 3 && costs.size(1) == costs.size(2) && costs.size(1) > 0, op,
             "costs [images, parts, parts]", c10::str(costs.sizes()));
}

// All permutations in lexicographic order, [parts!, parts], made on the device from their ranks in
// the factorial number system: a table of the host's would have to be copied.
Tensor permutations_on(const c10::Device& device, Index parts) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const Tensor below = at::arange(parts, options).clamp_min_(1).cumprod(0);  // 0!, 1!, 2!, …
  Index count = 1;
  for (Index i = 2; i <= parts; ++i) count *= i;
  const Tensor ranks = at::arange(count, options).unsqueeze(1);
  const Tensor table =
      ranks.floor_divide(below.flip(0)).remainder_(at::arange(parts, 0, -1, options));
  for (Index i = parts - 2; i >= 0; --i) {  // column i counts among those not left of it
    Tensor right = table.narrow(1, i + 1, parts - 1 - i);
    right += right.ge(table.narrow(1, i, 1));
  }
  return table;
}

}  // namespace

Tensor cosine_costs(const Tensor& z1, const Tensor& z2) {
  HONE_REQUIRE(z1.defined() && z2.defined(), "cosine_costs", "A view is an undefined tensor.");
  HONE_CHECK(z1.is_floating_point() && z2.is_floating_point(), "cosine_costs",
             "floating-point parts",
             concat(at::toString(z1.scalar_type()), " and ", at::toString(z2.scalar_type())));
  HONE_CHECK(z1.dim() == 3 && z1.sizes() == z2.sizes(), "cosine_costs",
             "two views [images, parts, dim]",
             concat(c10::str(z1.sizes()), " and ", c10::str(z2.sizes())));
  const at::NoGradGuard no_grad;
  return 1 - at::bmm(unit_rows(z1), unit_rows(z2).transpose(1, 2));
}

Tensor composed::match_by_table(const Tensor& costs) {
  check_costs("match_by_table", costs);
  const Index parts = costs.size(1);
  HONE_CHECK(parts <= kernels::kMaxTableParts, "match_by_table",
             concat("parts <= ", kernels::kMaxTableParts), parts);
  const at::NoGradGuard no_grad;
  const Tensor table = permutations_on(costs.device(), parts);
  // Summed in the order of the rows, as the kernel does, so that the same totals are equal.
  Tensor totals = costs.select(1, 0).index_select(1, table.select(1, 0));  // [B, parts!]
  for (Index k = 1; k < parts; ++k) {
    totals += costs.select(1, k).index_select(1, table.select(1, k));
  }
  return table.index_select(0, totals.argmin(1));
}

Tensor match_parts(const Tensor& costs, kernels::AssignmentMethod method) {
  check_costs("match_parts", costs);
  const Index batch = costs.size(0), parts = costs.size(1);
  HONE_TRACE_ZONE("match_parts", {"images", batch}, {"parts", parts});
  using Method = kernels::AssignmentMethod;
  const bool by_table = method == Method::Auto || method == Method::Table;
  if (costs.is_cuda() && by_table && parts <= kernels::kMaxTableParts) {
    return composed::match_by_table(costs);
  }
  const at::NoGradGuard no_grad;
  const Tensor on_host = costs.to(at::kCPU).contiguous();
  const Tensor permutation = at::empty({batch, parts}, at::kLong);
  std::vector<double> totals(static_cast<std::size_t>(batch));
  kernels::assign(method,
                  {.batch = batch,
                   .parts = parts,
                   .cost = on_host.const_data_ptr<double>(),
                   .perm = permutation.data_ptr<std::int64_t>(),
                   .total = totals.data()},
                  libtorch_executor());
  return permutation.to(costs.device());
}

}  // namespace hone::paco
