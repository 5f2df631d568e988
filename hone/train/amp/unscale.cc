// SPDX-License-Identifier: Apache-2.0
#include "hone/train/amp/unscale.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <map>

#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/codec/loss_scale.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/schedule/grad_norm.h"
#include "hone/train/interop.h"
#include "hone/train/optim/state_tensors.h"

namespace hone::amp {
namespace {

struct Gradient {
  torch::Tensor tensor;
  Index parameter = 0;
};

// Part of one fp32 gradient.
struct ScaledPiece {
  float* data = nullptr;
  Index length = 0, parameter = 0;
  double square_sum = 0;
};

void check_gradient(std::string_view op, const torch::Tensor& gradient, Index parameter,
                    bool may_be_half) {
  if (gradient.layout() != at::kStrided) {
    fail_unsupported(op, concat("a dense gradient of parameter ", parameter),
                     concat("layout ", c10::str(gradient.layout())));
  }
  if (gradient.scalar_type() == at::kHalf && !may_be_half) {
    fail_unsupported(op, concat("a gradient of parameter ", parameter, " wider than fp16"),
                     "fp16, which loses what unscaling makes small");
  }
}

// Calls visit(gradient, parameter) for each gradient, checked.
template <class Visit>
void for_each_gradient(std::string_view op, torch::optim::Optimizer& optimizer, const Visit& visit,
                       bool may_be_half = false) {
  Index parameter = 0, count = 0;
  for (auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& param : group.params()) {
      const Index index = parameter++;
      const torch::Tensor& gradient = param.grad();
      if (!gradient.defined()) continue;
      check_gradient(op, gradient, index, may_be_half);
      visit(gradient, index);
      ++count;
    }
  }
  HONE_CHECK(count > 0, op, "a gradient for at least one parameter", "none");
}

std::vector<Gradient> collect(std::string_view op, torch::optim::Optimizer& optimizer) {
  std::vector<Gradient> gradients;
  for_each_gradient(op, optimizer, [&](const torch::Tensor& gradient, Index parameter) {
    gradients.push_back({gradient, parameter});
  });
  return gradients;
}

bool runs_on_kernel(const torch::Tensor& gradient) {
  return gradient.is_cpu() && gradient.scalar_type() == at::kFloat &&
         gradient.is_non_overlapping_and_dense();
}

void note_nonfinite(UnscaleResult& result, Index parameter) {
  if (!result.found_inf || parameter < result.first_nonfinite) result.first_nonfinite = parameter;
  result.found_inf = true;
}

// Σ g² of the unscaled gradients.
double unscale_on_kernel(const std::vector<Gradient>& gradients, float inv_scale,
                         UnscaleResult& result) {
  std::vector<ScaledPiece> pieces;
  for (const Gradient& gradient : gradients) {
    auto* data = gradient.tensor.data_ptr<float>();
    bump_version(gradient.tensor);
    for (Index i = 0; i < gradient.tensor.numel(); i += kernels::kChunkElements) {
      const Index length = std::min(kernels::kChunkElements, gradient.tensor.numel() - i);
      pieces.push_back({data + i, length, gradient.parameter});
    }
  }
  constexpr Index kGrain = 4;
  libtorch_executor().parallel_for(
      static_cast<Index>(pieces.size()), kGrain, [&](Index begin, Index end, int) {
        for (Index i = begin; i < end; ++i) {
          ScaledPiece& piece = pieces[static_cast<std::size_t>(i)];
          piece.square_sum = kernels::unscale_chunk(piece.data, piece.length, inv_scale);
        }
      });
  double square_sum = 0;
  for (const ScaledPiece& piece : pieces) {
    if (!std::isfinite(piece.square_sum)) note_nonfinite(result, piece.parameter);
    square_sum += piece.square_sum;
  }
  return square_sum * inv_scale * inv_scale;
}

// Finds the tensor, which ATen does not report.
Index find_nonfinite(const std::vector<Gradient>& gradients) {
  for (const Gradient& gradient : gradients) {
    if (!at::isfinite(gradient.tensor).all().item<bool>()) return gradient.parameter;
  }
  return gradients.front().parameter;
}

// The same for one device and type. The operator takes its factor in fp32, which is not enough for
// fp64 gradients.
double unscale_on_aten(const std::vector<Gradient>& gradients, double inv_scale, bool want_norm,
                       UnscaleResult& result) {
  std::vector<torch::Tensor> tensors;
  for (const Gradient& gradient : gradients) tensors.push_back(gradient.tensor);
  const auto options = tensors.front().options().dtype(at::kFloat);
  const bool wide = tensors.front().scalar_type() == at::kDouble;
  torch::Tensor found = at::zeros({}, options);
  at::_amp_foreach_non_finite_check_and_unscale_(tensors, found,
                                                 at::full({}, wide ? 1 : inv_scale, options));
  if (wide) at::_foreach_mul_(tensors, inv_scale);
  torch::Tensor square_sum = at::zeros({}, options.dtype(at::kDouble));
  for (const torch::Tensor& tensor : tensors) {
    if (want_norm) square_sum += at::norm(tensor, 2, at::kDouble).square();
  }
  if (found.item<float>() != 0) note_nonfinite(result, find_nonfinite(gradients));
  return want_norm ? square_sum.item<double>() : 0;
}

}  // namespace

UnscaleResult unscale_gradients(std::string_view op, torch::optim::Optimizer& optimizer,
                                double inv_scale, bool want_norm) {
  const c10::NoGradGuard no_grad;
  std::vector<Gradient> plain;
  std::map<std::pair<std::string, at::ScalarType>, std::vector<Gradient>> others;
  for (Gradient& gradient : collect(op, optimizer)) {
    auto& list = runs_on_kernel(gradient.tensor)
                     ? plain
                     : others[{gradient.tensor.device().str(), gradient.tensor.scalar_type()}];
    list.push_back(std::move(gradient));
  }
  UnscaleResult result;
  double square_sum = unscale_on_kernel(plain, static_cast<float>(inv_scale), result);
  for (const auto& [kind, list] : others) {
    square_sum += unscale_on_aten(list, inv_scale, want_norm, result);
  }
  if (want_norm) result.norm = std::sqrt(square_sum);
  return result;
}

void check_gradients(std::string_view op, torch::optim::Optimizer& optimizer) {
  for_each_gradient(
      op, optimizer, [](const torch::Tensor&, Index) {}, /*may_be_half=*/true);
}

double measure_norm(std::string_view op, torch::optim::Optimizer& optimizer, double norm_type) {
  const c10::NoGradGuard no_grad;
  std::vector<kernels::NormPart> norms;
  for_each_gradient(op, optimizer, [&](const torch::Tensor& gradient, Index) {
    norms.push_back({optim::norm_of(gradient, norm_type).item<double>()});
  });
  return kernels::combine_norms(norms, norm_type);
}

void limit_gradients(std::string_view op, torch::optim::Optimizer& optimizer, double limit) {
  const c10::NoGradGuard no_grad;
  for_each_gradient(op, optimizer, [&](const torch::Tensor& gradient, Index) {
    // What fp32 does not hold limits fp64 alone.
    const double held = gradient.scalar_type() == at::kDouble ? limit : static_cast<float>(limit);
    gradient.clamp_(-held, held);
  });
}

}  // namespace hone::amp
