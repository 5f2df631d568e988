// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/onednn.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string_view>

#include "hone/core/check.h"
#include "hone/train/nn/arguments.h"

namespace hone::nn::onednn {
namespace {

using at::Tensor;
using detail::optional_of;
using Scalars = c10::List<std::optional<at::Scalar>>;
using Text = std::optional<std::string_view>;
using OptionalTensor = std::optional<Tensor>;

using Linear = Tensor(const Tensor&, const Tensor&, const OptionalTensor&, std::string_view,
                      Scalars, Text);
using Pack = Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t,
                    at::OptionalIntArrayRef);
using Conv = Tensor(const Tensor&, const Tensor&, const OptionalTensor&, at::IntArrayRef,
                    at::IntArrayRef, at::IntArrayRef, std::int64_t, std::string_view, Scalars,
                    Text);
using ConvAdd = Tensor(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                       at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t,
                       std::string_view, std::optional<at::Scalar>, Text, Scalars, Text);

// An operator of this signature; empty in builds without oneDNN.
template <class Signature>
std::optional<c10::TypedOperatorHandle<Signature>> find(const char* name, const char* overload,
                                                        c10::DispatchKey key) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!found || !found->hasKernelForDispatchKey(key)) return std::nullopt;
  return found->template typed<Signature>();
}

const auto& linear_operator() {
  static const auto handle = find<Linear>("mkldnn::_linear_pointwise", "", c10::DispatchKey::CPU);
  return handle;
}
const auto& pack_operator() {
  static const auto handle =
      find<Pack>("mkldnn::_reorder_convolution_weight", "", c10::DispatchKey::CPU);
  return handle;
}
const auto& conv_operator() {
  static const auto handle =
      find<Conv>("mkldnn::_convolution_pointwise", "", c10::DispatchKey::MkldnnCPU);
  return handle;
}
const auto& conv_add_operator() {
  static const auto handle =
      find<ConvAdd>("mkldnn::_convolution_pointwise", "binary", c10::DispatchKey::MkldnnCPU);
  return handle;
}

struct Name {
  std::string_view name, algorithm = "";
};
Name name_of(Activation activation) {
  switch (activation) {
    case Activation::None:
      return {"none"};
    case Activation::Relu:
      return {"relu"};
    case Activation::Gelu:
      return {"gelu", "none"};
    case Activation::GeluTanh:
      return {"gelu", "tanh"};
    case Activation::Silu:
      return {"swish"};
    case Activation::Sigmoid:
      return {"sigmoid"};
    case Activation::Tanh:
      return {"tanh"};
  }
  fail_argument("oneDNN", "No such activation.");
}

void require(bool has) {
  if (!has) fail_unsupported("oneDNN", "This LibTorch was built without oneDNN.");
}

}  // namespace

bool has_linear() { return linear_operator().has_value(); }

bool has_conv() { return pack_operator() && conv_operator() && conv_add_operator(); }

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  require(has_linear());
  const auto [name, algorithm] = name_of(activation);
  return linear_operator()->call(x, weight, optional_of(bias), name, Scalars(), algorithm);
}

Tensor packed(const Tensor& weight, const ConvGeometry& geometry, at::IntArrayRef input_sizes) {
  require(has_conv());
  const auto& [stride, padding, dilation, groups] = geometry;
  return pack_operator()->call(weight, padding, stride, dilation, groups, input_sizes);
}

Tensor conv(const Tensor& x, const Tensor& packed_weight, const Tensor& bias,
            const ConvGeometry& geometry, Activation activation, const Tensor& residual) {
  require(has_conv());
  const auto& [stride, padding, dilation, groups] = geometry;
  const auto [name, algorithm] = name_of(activation);
  if (!residual.defined()) {
    return conv_operator()->call(x, packed_weight, optional_of(bias), padding, stride, dilation,
                                 groups, name, Scalars(), algorithm);
  }
  const Text then = activation == Activation::None ? Text() : Text(name);
  return conv_add_operator()->call(x, residual, packed_weight, optional_of(bias), padding, stride,
                                   dilation, groups, "add", 1, then, Scalars(), Text());
}

}  // namespace hone::nn::onednn
