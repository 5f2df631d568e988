// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/index.h"

// What the tests of the losses over rows share.
namespace hone::loss::test {

using torch::Tensor;

inline Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }
inline Tensor labels(const std::vector<Index>& values) { return at::tensor(values, at::kLong); }
// Rows of two numbers.
inline Tensor points(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).reshape({-1, 2});
}

// The rows divided by their norms, but by no less than 1e-12, one by one.
inline std::vector<Tensor> unit_by_loops(const Tensor& features) {
  std::vector<Tensor> rows;
  for (Index i = 0; i < features.size(0); ++i) {
    const Tensor row = features[i], squares = row.dot(row);
    const bool is_short = squares.item<double>() < 1e-24;
    rows.push_back(is_short ? row / 1e-12 : row / squares.sqrt());
  }
  return rows;
}

struct Evaluated {
  Tensor value, gradient;
};
using Loss = std::function<Tensor(const Tensor& features)>;

// The loss of a copy of the features, and its gradient.
inline Evaluated evaluate(const Loss& loss, const Tensor& features) {
  const Tensor leaf = features.detach().clone().requires_grad_();
  const Tensor value = loss(leaf);
  return {value.detach(), torch::autograd::grad({value}, {leaf})[0]};
}

// The largest error of a row, as a share of the largest number in the row, or of 1.
inline double worst(const Tensor& got, const Tensor& want) {
  const auto by_row = [](const Tensor& x) { return x.abs().reshape({x.size(0), -1}).amax(1); };
  const Tensor error = got - want;
  if (error.dim() == 0) return worst(got.reshape({1}), want.reshape({1}));
  return (by_row(error) / by_row(want).clamp_min(1)).max().item<double>();
}

inline void expect_same(const Evaluated& got, const Evaluated& want, const std::string& what) {
  EXPECT_LE(worst(got.value, want.value), 1e-12) << what;
  EXPECT_LE(worst(got.gradient, want.gradient), 1e-10) << what << got.gradient << want.gradient;
}

// Errors of a gradient that is known to the last digits; its rows may be 0.
inline void expect_gradient(const Tensor& got, const Tensor& want) {
  EXPECT_LE((got - want).abs().max().item<double>(), 1e-14) << got << want;
}

// Nothing to learn: the loss is 0 and so is the gradient, through the graph.
inline void expect_nothing(const Loss& loss, const Tensor& features) {
  const Tensor leaf = features.detach().clone().requires_grad_();
  const Tensor value = loss(leaf);
  ASSERT_TRUE(value.requires_grad());
  EXPECT_EQ(value.item<double>(), 0);
  value.backward();
  EXPECT_TRUE(leaf.grad().equal(at::zeros_like(leaf))) << leaf.grad();
}

// The loss does not depend on the lengths of rows, nor on their order.
inline void expect_invariant(const std::function<Tensor(const Tensor&, const Tensor&)>& loss,
                             const Tensor& features, const Tensor& targets) {
  const Evaluated base = evaluate([&](const Tensor& x) { return loss(x, targets); }, features);
  ASSERT_GT(base.value.item<double>(), 0);
  const Tensor lengths = at::rand({features.size(0), 1}, at::kDouble) * 9 + 0.1;
  const Evaluated scaled =
      evaluate([&](const Tensor& x) { return loss(x, targets); }, features * lengths);
  expect_same({scaled.value, scaled.gradient * lengths}, base, "scaled");
  const Tensor order = at::randperm(features.size(0), at::kLong);
  const Tensor moved_targets = targets.index_select(0, order);
  const Evaluated moved = evaluate([&](const Tensor& x) { return loss(x, moved_targets); },
                                   features.index_select(0, order));
  expect_same(moved, {base.value, base.gradient.index_select(0, order)}, "in another order");
}

inline std::set<std::string>& recorded_operators() {
  static std::set<std::string> names;
  return names;
}
// The names of the operators that `run` calls on this thread.
inline std::set<std::string> operators_of(const std::function<void()>& run) {
  recorded_operators().clear();
  const at::CallbackHandle handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        recorded_operators().insert(function.name());
        return nullptr;
      }));
  run();
  at::removeCallback(handle);
  return recorded_operators();
}

// On a device, reading a number or counting the marked ones would wait for it.
inline void expect_no_waiting(const Loss& loss, const Tensor& features) {
  constexpr const char* kRead = "aten::_local_scalar_dense";
  const Tensor one = at::ones({});
  ASSERT_TRUE(operators_of([&] { one.item<float>(); }).contains(kRead));
  const auto called = operators_of([&] { evaluate(loss, features); });
  EXPECT_TRUE(called.contains("aten::square"));
  for (const char* waits : {kRead, "aten::nonzero", "aten::masked_select"}) {
    EXPECT_FALSE(called.contains(waits)) << waits;
  }
}

}  // namespace hone::loss::test
