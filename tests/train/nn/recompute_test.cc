// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/recompute.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "hone/core/error.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/nn/llama.h"

namespace hone::nn {
namespace {

using torch::Tensor;

Tensor random(at::IntArrayRef sizes, bool with_grad = true) {
  return at::randn(sizes).requires_grad_(with_grad);
}

struct Outcome {
  Tensors results, grads;  // grads: of the leaves
  Tensor next_draw;        // of the generator behind forward and backward
};

// Both ways from one random state; `plain` is what recompute() must not be told from.
template <class Run>
void expect_the_same_bits(const Tensors& leaves, const Run& run) {
  const auto once = [&](bool recomputed) {
    for (const Tensor& leaf : leaves) leaf.mutable_grad() = Tensor();
    at::manual_seed(7);
    Outcome outcome;
    outcome.results = run(recomputed);
    Tensor loss = at::zeros({});
    for (const Tensor& result : outcome.results) {
      if (result.is_floating_point()) loss = loss + (result * result).sum();
    }
    loss.backward();
    for (const Tensor& leaf : leaves) outcome.grads.push_back(leaf.grad());
    outcome.next_draw = at::rand({4});
    return outcome;
  };
  const Outcome plain = once(false), again = once(true);
  EXPECT_TRUE(plain.next_draw.equal(again.next_draw));
  for (std::size_t i = 0; i < plain.results.size(); ++i) {
    EXPECT_TRUE(plain.results[i].equal(again.results[i])) << i;
  }
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_EQ(plain.grads[i].defined(), again.grads[i].defined()) << i;
    if (!plain.grads[i].defined()) continue;
    EXPECT_TRUE(plain.grads[i].equal(again.grads[i])) << i;
    EXPECT_GT(plain.grads[i].abs().max().item<double>(), 0) << i;
  }
}

Tensors apply(bool recomputed, const Segment& segment, const Tensors& inputs) {
  return recomputed ? recompute(segment, inputs) : segment(inputs);
}

TEST(Recompute, keeps_the_bits_with_dropout_several_inputs_and_captured_weights) {
  const Tensor x = random({8, 16}), y = random({8, 16}), constant = random({8, 16}, false);
  const Tensor weight = random({16, 16});
  const Segment segment = [&](const Tensors& in) -> Tensors {
    EXPECT_FALSE(in[3].defined());
    const Tensor hidden = at::dropout(at::relu(at::mm(in[0], weight)), 0.5, /*train=*/true);
    return {hidden * in[1] + in[2], at::argmax(hidden, 1), at::dropout(hidden, 0.1, true), in[1]};
  };
  expect_the_same_bits({x, y, weight, constant}, [&](bool recomputed) {
    const Tensors first = apply(recomputed, segment, {x, y, constant, {}});
    return Tensors{apply(recomputed, segment, {first[0], first[2], constant, {}})};
  });
}

TEST(Recompute, keeps_the_bits_when_nested_and_when_only_captured_weights_need_gradients) {
  const Tensor x = random({8, 16}, false), weight = random({16, 16}), bias = random({16});
  const Segment inner = [&](const Tensors& in) -> Tensors {
    return {at::dropout(at::tanh(at::mm(in[0], weight)), 0.3, true)};
  };
  expect_the_same_bits({weight, bias}, [&](bool recomputed) {
    const Segment outer = [&, recomputed](const Tensors& in) -> Tensors {
      const Tensor once = apply(recomputed, inner, in)[0];
      return {at::dropout(apply(recomputed, inner, {once + bias})[0], 0.2, true)};
    };
    return apply(recomputed, outer, {x});
  });
}

// x·first, then ·second behind the segment, in bf16.
Tensors autocast_products(bool recomputed, const Tensor& x, const Tensor& first,
                          const Tensor& second) {
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const Segment segment = [first](const Tensors& in) -> Tensors {
    const Tensor product = at::mm(in[0], first);
    EXPECT_EQ(product.scalar_type(), at::kBFloat16);
    return {at::mm(product, first).to(at::kFloat)};
  };
  const Tensor out = at::mm(apply(recomputed, segment, {x})[0], second).to(at::kFloat);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  return {out};
}

TEST(Recompute, computes_again_under_the_autocast_of_the_forward_pass) {
  const Tensor x = random({8, 16}), first = random({16, 16}), second = random({16, 16});
  expect_the_same_bits({x, first, second}, [&](bool recomputed) {
    return autocast_products(recomputed, x, first, second);
  });
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  // A weight used on both sides has two casts instead of one; none may lack a gradient.
  Tensors grads;
  for (const bool recomputed : {false, true}) {
    first.mutable_grad() = Tensor();
    autocast_products(recomputed, x, first, first)[0].sum().backward();
    grads.push_back(first.grad());
  }
  EXPECT_LE((grads[1] - grads[0]).norm().item<double>(), 0.01 * grads[0].norm().item<double>());
}

TEST(Recompute, passes_errors_of_the_second_computation_on_and_puts_the_random_state_back) {
  const Tensor x = random({4, 4});
  int calls = 0;
  const Tensor out = recompute(
      [&](const Tensors& in) -> Tensors {
        const Tensor dropped = at::dropout(in[0], 0.5, true);
        if (++calls == 2) throw std::runtime_error("the second time");
        return {dropped};
      },
      {x})[0];
  const Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  try {
    out.sum().backward();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the second time");
  }
  EXPECT_TRUE(before.equal(at::detail::getDefaultCPUGenerator().get_state()));
  EXPECT_FALSE(x.grad().defined());
}

TEST(Recompute, refuses_what_it_cannot_do) {
  const Tensor x = random({4}), weight = random({4});
  const Segment product = [&](const Tensors& in) -> Tensors { return {in[0] * weight}; };
  const auto category = [](const auto& act) {
    try {
      act();
    } catch (const Error& error) {
      return error.category();
    }
    return ErrorCategory::Cancelled;
  };
  EXPECT_EQ(ErrorCategory::Unsupported,
            category([&] { torch::autograd::grad({recompute(product, {x})[0].sum()}, {x}); }));
  EXPECT_EQ(ErrorCategory::Unsupported, category([&] {
              recompute(product, {x})[0].sum().backward({}, std::nullopt, /*create_graph=*/true);
            }));
  Index size = 4;
  const Tensor impure =
      recompute([&](const Tensors& in) -> Tensors { return {in[0].narrow(0, 0, size--)}; }, {x})[0];
  EXPECT_EQ(ErrorCategory::Internal, category([&] { impure.sum().backward(); }));
  Tensor base = random({4}) * 2;
  const Tensor out = recompute(product, {base})[0];
  base.mul_(2);
  EXPECT_THROW(out.sum().backward(), c10::Error);
}

TEST(Recompute, computes_once_without_gradients_and_again_for_a_retained_graph) {
  const Tensor x = random({4});
  int calls = 0;
  const Segment square = [&](const Tensors& in) -> Tensors { return {(++calls, in[0] * in[0])}; };
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(recompute(square, {x})[0].requires_grad());
  }
  EXPECT_EQ(calls, 1);
  const Tensor sum = recompute(square, {x})[0].sum();
  sum.backward({}, /*retain_graph=*/true);
  const Tensor once = x.grad().clone();
  sum.backward();
  EXPECT_EQ(calls, 4);
  EXPECT_TRUE(x.grad().equal(2 * once));
}

model_io::Architecture deep(Index layers) {
  model_io::Architecture out;
  out.vocab_size = 512, out.hidden_size = 160, out.intermediate_size = 432, out.layers = layers;
  out.heads = out.kv_heads = 5, out.head_dim = 32, out.context = 128;
  out.tied_embeddings = true;
  out.rope.rotary_dims = out.head_dim;
  return out;
}

struct Measured {
  Index activations = 0;  // peak above weights and gradients
  double seconds = 0;     // fastest of the passes
  Tensors grads;
};

// Gradients exist before each pass, so that what is above is activations and workspace.
Measured measure(Llama& model, Index recompute_every) {
  model->set_recompute_every(recompute_every);
  const Tensor ids = at::arange(8 * 128).remainder(512).view({8, 128});
  const Tensor targets = ((ids * 7 + 3) % 512).contiguous();
  memory::MemoryMeter meter;
  Measured out;
  for (Tensor& parameter : model->parameters())
    parameter.mutable_grad() = at::zeros_like(parameter);
  out.seconds = 1e9;
  for (int pass = 0; pass < 3; ++pass) {
    for (Tensor& parameter : model->parameters()) parameter.grad().zero_();
    const Index before = meter.use().current;
    meter.reset_peak();
    const auto begin = std::chrono::steady_clock::now();
    model->loss_sum(ids, targets).backward();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    out.seconds = std::min(out.seconds, took.count());
    out.activations = meter.use().peak - before;
    EXPECT_EQ(meter.use().current, before);
  }
  for (Tensor& parameter : model->parameters()) out.grads.push_back(parameter.grad().clone());
  return out;
}

TEST(Recompute, halves_the_activations_of_24_blocks_and_keeps_every_bit) {
  Llama model(deep(24), 3);
  const Measured plain = measure(model, 0);
  for (const Index every : {1, 2}) {
    const Measured saved = measure(model, every);
    ASSERT_EQ(plain.grads.size(), saved.grads.size());
    for (std::size_t i = 0; i < plain.grads.size(); ++i) {
      EXPECT_TRUE(plain.grads[i].equal(saved.grads[i])) << i;
    }
    const auto with = static_cast<double>(saved.activations),
               without = static_cast<double>(plain.activations);
    const double memory = with / without, time = saved.seconds / plain.seconds;
    std::printf("every %d: %.1f of %.1f MB (%.3f), time x %.3f\n", static_cast<int>(every),
                with / 1e6, without / 1e6, memory, time);
    EXPECT_LE(memory, every == 1 ? 0.45 : 0.70);
  }
}

}  // namespace
}  // namespace hone::nn
