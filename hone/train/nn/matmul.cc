// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/matmul.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <array>
#include <optional>
#include <string_view>

#include "hone/core/check.h"
#include "hone/core/cpu_info.h"

namespace hone::nn {
namespace {

using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&,
                                   const std::optional<at::Tensor>&, std::string_view,
                                   c10::List<std::optional<at::Scalar>>,
                                   std::optional<std::string_view>);
using LinearHandle = c10::TypedOperatorHandle<LinearPointwise>;

// oneDNN's f32 inner product as LibTorch registers it for its compiler; absent in builds without
// oneDNN.
const std::optional<LinearHandle>& onednn_linear() {
  static const std::optional<LinearHandle> handle = []() -> std::optional<LinearHandle> {
    const auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!found || !found->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
    return found->typed<LinearPointwise>();
  }();
  return handle;
}

at::Tensor call_onednn(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto optional_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  return onednn_linear()->call(x, weight, optional_bias, "none",
                               c10::List<std::optional<at::Scalar>>(), "");
}

}  // namespace

MatmulBackend resolve(MatmulBackend backend) {
  if (backend == MatmulBackend::Auto) {
    const bool intel = cpu_info().model.find("Intel") != std::string::npos;
    const bool pays = !intel && machine_has(Isa::Avx512) && onednn_linear().has_value();
    return pays ? MatmulBackend::OneDnn : MatmulBackend::Mkl;
  }
  if (backend == MatmulBackend::OneDnn && !onednn_linear()) {
    fail_unsupported("matmul", "a LibTorch built with oneDNN", "one without");
  }
  return backend;
}

MatmulBackend parse_matmul_backend(std::string_view name) {
  if (name == "auto") return MatmulBackend::Auto;
  if (name == "onednn") return MatmulBackend::OneDnn;
  if (name == "mkl") return MatmulBackend::Mkl;
  fail_argument("matmul", "auto, onednn or mkl", name);
}

namespace detail {

torch::Tensor multiply(const torch::Tensor& x, const torch::Tensor& weight,
                       const torch::Tensor& bias, MatmulBackend backend) {
  if (backend == MatmulBackend::OneDnn) return call_onednn(x, weight, bias);
  return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
}

torch::Tensor multiply_for_input(const torch::Tensor& grad, const torch::Tensor& weight,
                                 MatmulBackend backend) {
  if (backend == MatmulBackend::OneDnn) return call_onednn(grad, weight.t(), {});
  return at::mm(grad, weight);
}

// oneDNN copies a transposed first operand and takes a transposed second one as it is: the narrower
// of the two goes first (1.3 x against the other order at 2048 rows, 160 by 864).
torch::Tensor multiply_for_weight(const torch::Tensor& grad, const torch::Tensor& x,
                                  MatmulBackend backend) {
  if (backend != MatmulBackend::OneDnn) return at::mm(grad.t(), x);
  if (grad.size(1) <= x.size(1)) return call_onednn(grad.t(), x.t(), {});
  return call_onednn(x.t(), grad.t(), {}).t().contiguous();
}

}  // namespace detail
}  // namespace hone::nn
