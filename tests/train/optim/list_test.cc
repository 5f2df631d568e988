// SPDX-License-Identifier: Apache-2.0
// Functions over lists of LibTorch's tensors next to at::_foreach_* and clip_grad_norm_.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <limits>

#include "hone/kernels/multi_tensor/list/multi_tensor_list.h"
#include "hone/train/interop.h"
#include "tests/support/tensors.h"

namespace {

using hone::test::copies;
using hone::test::Tensors;

// As in docs/multi-tensor.md.
double clip_and_average(const std::vector<at::Tensor>& grads, const std::vector<at::Tensor>& params,
                        const std::vector<at::Tensor>& averages) {
  std::vector<hone::TensorView> g, p, average;
  for (const at::Tensor& tensor : grads) g.push_back(hone::view_of(tensor, "gradient"));
  for (const at::Tensor& tensor : params) p.push_back(hone::view_of(tensor, "parameter"));
  for (const at::Tensor& tensor : averages) average.push_back(hone::view_of(tensor, "average"));
  hone::Executor& threads = hone::libtorch_executor();
  const double norm = hone::kernels::list_clip_norm(g, 1.0, threads);
  hone::kernels::list_axpby({.a = 0.01, .x = p, .b = 0.99, .y = average}, threads);
  for (const at::Tensor& tensor : grads) hone::bump_version(tensor);
  for (const at::Tensor& tensor : averages) hone::bump_version(tensor);
  return norm;
}

Tensors random_tensors() {
  return {at::randn({7}), at::randn({40, 33}).t(), at::empty({0, 3}), at::randn({300, 200}),
          at::randn({2, 3, 5, 4}).contiguous(at::MemoryFormat::ChannelsLast)};
}

std::vector<hone::TensorView> views_of(const Tensors& tensors) {
  std::vector<hone::TensorView> views;
  for (const at::Tensor& tensor : tensors) views.push_back(hone::view_of(tensor, "tensor"));
  return views;
}

void expect_close(const Tensors& got, const Tensors& want) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(at::allclose(got[i], want[i], 1e-5, 1e-6, /*equal_nan=*/true)) << i;
  }
}

TEST(ListAgainstLibTorch, the_page_s_example_clips_and_averages) {
  at::manual_seed(1);
  const Tensors grads = random_tensors(), params = copies(grads);
  const Tensors averages = copies(params), expected = copies(averages);
  for (const at::Tensor& tensor : params) tensor.mul_(3);
  Tensors with_grads;
  for (const at::Tensor& grad : grads) {
    with_grads.push_back(at::zeros_like(grad).set_requires_grad(true));
    with_grads.back().mutable_grad() = grad.clone();
  }
  const double want = torch::nn::utils::clip_grad_norm_(with_grads, 1.0);
  for (std::size_t i = 0; i < params.size(); ++i) expected[i].mul_(0.99).add_(params[i], 0.01);
  const auto version = grads[0]._version();
  EXPECT_NEAR(clip_and_average(grads, params, averages), want, 1e-5 * want);
  EXPECT_GT(grads[0]._version(), version);
  expect_close(averages, expected);
  for (std::size_t i = 0; i < grads.size(); ++i) {
    EXPECT_TRUE(at::allclose(grads[i], with_grads[i].grad(), 1e-5, 1e-7)) << i;
  }
}

TEST(ListAgainstLibTorch, arithmetic_is_that_of_foreach) {
  at::manual_seed(2);
  const Tensors x = random_tensors(), y = copies(x), other = copies(x);
  const auto x_views = views_of(x), y_views = views_of(y);
  hone::Executor& threads = hone::libtorch_executor();
  hone::kernels::list_add(y_views, 0.3, x_views, threads);
  at::_foreach_add_(other, x, 0.3);
  expect_close(y, other);
  const std::vector<double> factors{1, -2, 3, 0.5, 7};
  hone::kernels::list_mul(y_views, factors, threads);
  const std::vector<at::Scalar> scalars(factors.begin(), factors.end());
  at::_foreach_mul_(other, scalars);
  expect_close(y, other);
  hone::kernels::list_mul(y_views, x_views, threads);
  at::_foreach_mul_(other, x);
  expect_close(y, other);
  y[0][2] = other[0][2] = std::numeric_limits<float>::quiet_NaN();
  hone::kernels::list_clamp(y_views, -0.5, 0.75, threads);
  for (const at::Tensor& tensor : other) tensor.clamp_(-0.5, 0.75);
  expect_close(y, other);
}

TEST(ListAgainstLibTorch, norms_are_those_of_foreach) {
  at::manual_seed(3);
  Tensors x = random_tensors();
  x.erase(x.begin() + 2);  // LibTorch has no largest element of nothing
  using hone::kernels::NormKind;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double bad : {0.5, kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    x[1][3][4] = bad;
    for (const auto& [kind, order] :
         {std::pair(NormKind::L1, 1.0), {NormKind::L2, 2.0}, {NormKind::Max, kInfinity}}) {
      std::vector<double> norms(x.size());
      hone::Executor& threads = hone::libtorch_executor();
      const double all = hone::kernels::list_norm(views_of(x), threads, kind, norms);
      const at::Tensor each = at::stack(at::_foreach_norm(x, order)).to(at::kDouble);
      EXPECT_TRUE(at::allclose(at::tensor(norms, at::kDouble), each, 1e-5, 0, true)) << order;
      const at::Tensor total = at::linalg_vector_norm(each, order);
      EXPECT_TRUE(at::allclose(at::scalar_tensor(all, at::kDouble), total, 1e-5, 0, true)) << order;
    }
  }
}

}  // namespace
