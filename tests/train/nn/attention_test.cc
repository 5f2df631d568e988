// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "hone/core/error.h"
#include "tests/support/tensors.h"

namespace hone::nn {
namespace {

using test::relative_error;
using torch::Tensor;

constexpr double kEps = 1e-3;  // large enough to count

struct Case {
  Index batch, positions, heads, kv_heads, head_dim;
  Index window;  // 0: none
  double scale;
  bool norms, whole_rows;  // of each head or of all heads of a position

  HeadLayout layout() const { return {heads, kv_heads, head_dim}; }
  std::string text() const {
    return std::to_string(positions) + " positions, window " + std::to_string(window) + ", norms " +
           std::to_string(norms) + std::to_string(whole_rows);
  }
};

// Windows of one position, of all but one, and of blocks of the flash kernel (512 keys) of which
// whole ones are masked.
constexpr Case kCases[] = {
    {2, 13, 4, 2, 8, 0, 0, false, false},    {2, 13, 4, 2, 8, 0, 0.21, true, false},
    {2, 13, 4, 1, 8, 5, 0, true, true},      {1, 13, 4, 4, 16, 1, 0.4, true, false},
    {3, 13, 6, 3, 8, 12, 0, false, false},   {3, 1, 2, 1, 8, 1, 0, true, false},
    {1, 700, 4, 2, 16, 7, 0.3, true, false}, {2, 1100, 2, 1, 8, 530, 0, true, true}};

Tensor wave(at::IntArrayRef sizes, double salt) {
  const Tensor flat = at::arange(c10::multiply_integers(sizes), at::kDouble);
  return at::sin(flat * (1.7 + salt) + salt).view(sizes).to(at::kFloat);
}

RopeTable rope_of(const Case& c) {
  const Tensor dims = at::arange(0, c.head_dim, 2, at::kDouble) / c.head_dim;
  const Tensor angles = at::arange(c.positions + 3, at::kDouble).unsqueeze(1) *
                        at::pow(at::full({}, 100.0, at::kDouble), -dims);
  return {angles.cos().to(at::kFloat), angles.sin().to(at::kFloat)};
}

struct Inputs {
  explicit Inputs(const Case& c, at::ScalarType type)
      : qkv(wave({c.batch, c.positions, c.layout().width()}, 0.1).to(type).requires_grad_()) {
    traits.norm_eps = kEps;
    traits.scale = c.scale;
    if (c.window > 0) {
      traits.mask = window_mask(c.positions, c.window, qkv.options()).to(type);
    }
    if (!c.norms) return;
    const auto weight = [&](Index heads, double salt) {
      return (1 + wave({(c.whole_rows ? heads : 1) * c.head_dim}, salt) / 2)
          .to(type)
          .requires_grad_();
    };
    traits.q_norm = weight(c.heads, 0.2);
    traits.k_norm = weight(c.kv_heads, 0.3);
  }
  std::vector<Tensor> leaves() const {
    std::vector<Tensor> out{qkv};
    if (traits.q_norm.defined()) out.insert(out.end(), {traits.q_norm, traits.k_norm});
    return out;
  }

  Tensor qkv;
  AttentionTraits traits;
};

// One head of one position after its norm and RoPE, by the definitions.
std::vector<double> head_of(const Case& c, const Tensor& row, Index first, Index count, Index head,
                            const Tensor& norm, Index position) {
  const auto value = [&](Index i) { return row[first * c.head_dim + i].item<double>(); };
  const Index begin = head * c.head_dim;
  std::vector<double> x;
  for (Index i = 0; i < c.head_dim; ++i) x.push_back(value(begin + i));
  if (norm.defined()) {
    const Index from = c.whole_rows ? 0 : begin,
                size = c.whole_rows ? count * c.head_dim : c.head_dim;
    double squares = 0;
    for (Index i = from; i < from + size; ++i) squares += value(i) * value(i);
    const double rms = std::sqrt(squares / static_cast<double>(size) + kEps);
    for (Index i = 0; i < c.head_dim; ++i)
      x[static_cast<std::size_t>(i)] *= norm[begin + i - from].item<double>() / rms;
  }
  std::vector<double> turned = x;
  const auto half = static_cast<std::size_t>(c.head_dim / 2);
  for (std::size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) *
                         std::pow(100.0, -static_cast<double>(i) / static_cast<double>(half));
    turned[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
    turned[i + half] = x[i + half] * std::cos(angle) + x[i] * std::sin(angle);
  }
  return turned;
}

// The last position of the first text, by loops over what it sees.
std::vector<double> attend_last(const Case& c, const Inputs& in) {
  const Tensor rows = in.qkv.detach()[0];
  const Index last = c.positions - 1, seen = c.window == 0 ? c.positions : c.window;
  const double scale = c.scale > 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.head_dim));
  std::vector<double> out;
  for (Index head = 0; head < c.heads; ++head) {
    const Index kv = head / (c.heads / c.kv_heads);
    const auto q = head_of(c, rows[last], 0, c.heads, head, in.traits.q_norm, last);
    std::vector<double> values(static_cast<std::size_t>(c.head_dim));
    double sum = 0;
    for (Index at = std::max<Index>(0, c.positions - seen); at < c.positions; ++at) {
      const auto k = head_of(c, rows[at], c.heads, c.kv_heads, kv, in.traits.k_norm, at);
      double score = 0;
      for (std::size_t i = 0; i < q.size(); ++i) score += q[i] * k[i];
      const double weight = std::exp(score * scale);
      sum += weight;
      for (Index i = 0; i < c.head_dim; ++i) {
        values[static_cast<std::size_t>(i)] +=
            weight * rows[at][(c.heads + c.kv_heads + kv) * c.head_dim + i].item<double>();
      }
    }
    for (const double value : values) out.push_back(value / sum);
  }
  return out;
}

TEST(Attention, composed_operators_follow_the_definition) {
  for (const Case& c : kCases) {
    if (c.positions > 100) continue;
    const Inputs in(c, at::kDouble);
    // The tables are f32 numbers of the definition's angles.
    const Tensor got = composed::causal_attention(in.qkv, rope_of(c), c.layout(), in.traits)
                           .detach()[0][c.positions - 1];
    const std::vector<double> want = attend_last(c, in);
    ASSERT_EQ(got.numel(), std::ssize(want));
    for (Index i = 0; i < got.numel(); ++i)
      ASSERT_NEAR(got[i].item<double>(), want[static_cast<std::size_t>(i)], 1e-6) << c.text();
  }
}

TEST(Attention, and_its_gradients_are_those_of_composed_operators_in_double_precision) {
  for (const Case& c : kCases) {
    const Inputs fused(c, at::kFloat), oracle(c, at::kDouble);
    const RopeTable rope = rope_of(c);
    const Tensor got = causal_attention(fused.qkv, rope, c.layout(), fused.traits);
    const Tensor want = causal_attention(oracle.qkv, rope, c.layout(), oracle.traits);
    EXPECT_LE(relative_error(got, want), 3e-6) << c.text();
    const Tensor grad = wave(got.sizes(), 0.7);
    got.backward(grad);
    want.backward(grad.to(at::kDouble));
    const auto leaves = fused.leaves(), oracles = oracle.leaves();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      EXPECT_LE(test::worst_difference({leaves[i].grad()}, {oracles[i].grad()}), 2e-5)
          << c.text() << ' ' << i;
    }
  }
}

// As many windows as positions see everything, with or without the mask.
TEST(Attention, a_window_of_all_positions_is_none) {
  Case c = kCases[0];
  c.window = c.positions;
  const Inputs masked(c, at::kFloat);
  EXPECT_TRUE(masked.traits.mask.eq(0).sum().item<Index>() == 13 * 14 / 2);
  c.window = 0;
  const Inputs plain(c, at::kFloat);
  EXPECT_LE(relative_error(causal_attention(masked.qkv, rope_of(c), c.layout(), masked.traits),
                           causal_attention(plain.qkv, rope_of(c), c.layout(), plain.traits)),
            1e-6);
}

TEST(Attention, a_mask_shows_a_position_itself_and_those_of_its_window) {
  const Tensor mask = window_mask(5, 2, at::TensorOptions());
  for (Index row = 0; row < 5; ++row) {
    for (Index column = 0; column < 5; ++column) {
      const float value = mask[row][column].item<float>();
      const bool is_seen = column == row || column == row - 1;
      EXPECT_EQ(value, is_seen ? 0.0F : -INFINITY) << row << ' ' << column;
    }
  }
}

TEST(Attention, refuses_norms_of_another_size) {
  const Case c = kCases[1];
  Inputs in(c, at::kFloat);
  in.traits.q_norm = at::ones({c.head_dim + 1});
  EXPECT_THROW(causal_attention(in.qkv, rope_of(c), c.layout(), in.traits), Error);
}

}  // namespace
}  // namespace hone::nn
