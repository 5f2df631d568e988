// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/dropout.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "hone/core/index.h"
#include "hone/core/philox.h"

namespace hone::nn::detail {
namespace {

using torch::Tensor;

// Blocks that are computed together, a lane of a vector each, and their elements.
constexpr Index kDropBlocks = 16, kDropSpan = 4 * kDropBlocks, kDropGrain = 256;

std::uint64_t drop_threshold(double rate) {
  return static_cast<std::uint64_t>(std::floor(std::ldexp(rate, 32)));
}

// As philox() of core/philox.h for the counters {block, block + 1, …}: words[4 * i + k] is word k
// of block i.
void draw_words(std::uint64_t key, std::uint64_t block, std::array<std::uint32_t, kDropSpan>& out) {
  using Lane = std::array<std::uint64_t, kDropBlocks>;
  Lane c0, c1, c2{}, c3{};
  for (Index i = 0; i < kDropBlocks; ++i) {
    c0[i] = (block + i) & 0xffffffffu;
    c1[i] = (block + i) >> 32;
  }
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (Index i = 0; i < kDropBlocks; ++i) {
      const std::uint64_t p0 = (c0[i] & 0xffffffffu) * 0xD2511F53u;
      const std::uint64_t p1 = (c2[i] & 0xffffffffu) * 0xCD9E8D57u;
      c0[i] = (p1 >> 32) ^ c1[i] ^ k0;
      c2[i] = (p0 >> 32) ^ c3[i] ^ k1;
      c1[i] = p1 & 0xffffffffu;
      c3[i] = p0 & 0xffffffffu;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (Index i = 0; i < kDropBlocks; ++i) {
    out[4 * i] = static_cast<std::uint32_t>(c0[i]);
    out[4 * i + 1] = static_cast<std::uint32_t>(c1[i]);
    out[4 * i + 2] = static_cast<std::uint32_t>(c2[i]);
    out[4 * i + 3] = static_cast<std::uint32_t>(c3[i]);
  }
}

void drop_f32(const float* x, Index count, double rate, std::uint64_t key, float* out) {
  const std::uint64_t threshold = drop_threshold(rate);
  const auto scale = static_cast<float>(1 / (1 - rate));
  const Index spans = (count + kDropSpan - 1) / kDropSpan;
  at::parallel_for(0, spans, kDropGrain, [&](Index begin, Index end) {
    std::array<std::uint32_t, kDropSpan> words;
    for (Index span = begin; span < end; ++span) {
      draw_words(key, static_cast<std::uint64_t>(span * kDropBlocks), words);
      const Index first = span * kDropSpan, n = std::min(kDropSpan, count - first);
      for (Index i = 0; i < n; ++i) {
        out[first + i] = words[i] >= threshold ? x[first + i] * scale : 0.0f;
      }
    }
  });
}

}  // namespace

Tensor kept(torch::Device device, std::int64_t count, double rate, std::uint64_t key) {
  const auto low = [](const Tensor& t) { return t.bitwise_and(0xffffffffLL); };
  const auto high = [&](const Tensor& t) { return low(at::bitwise_right_shift(t, 32)); };
  const Tensor block =
      at::arange((count + 3) / 4, at::TensorOptions().dtype(at::kLong).device(device));
  Tensor c0 = low(block), c1 = high(block), c2 = at::zeros_like(block), c3 = c2;
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {  // products wrap, as those of unsigned numbers do
    const Tensor p0 = c0 * std::int64_t{0xD2511F53}, p1 = c2 * std::int64_t{0xCD9E8D57};
    c0 = high(p1).bitwise_xor(c1).bitwise_xor(static_cast<std::int64_t>(k0));
    c2 = high(p0).bitwise_xor(c3).bitwise_xor(static_cast<std::int64_t>(k1));
    c1 = low(p1);
    c3 = low(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const Tensor words = at::stack({c0, c1, c2, c3}, 1).view({-1}).narrow(0, 0, count);
  return words.ge(static_cast<std::int64_t>(drop_threshold(rate)));
}

void drop(const Tensor& x, double rate, std::uint64_t key, const Tensor& out) {
  if (x.device().is_cpu() && x.scalar_type() == at::kFloat) {
    drop_f32(x.data_ptr<float>(), x.numel(), rate, key, out.data_ptr<float>());
    return;
  }
  const Tensor mask = kept(x.device(), x.numel(), rate, key).view_as(x);
  out.copy_(x * mask.to(x.scalar_type()).div_(1 - rate));
}

std::uint64_t draw_dropout_key() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

}  // namespace hone::nn::detail
