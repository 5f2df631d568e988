// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "hone/core/philox.h"
#include "hone/kernels/multi_tensor/layout/plan.h"

namespace hone::test {

struct TensorSetOptions {
  bool momentum = true, second_moment = false, extra = false;
  Index misalign = 0;  // floats between a 16-byte boundary and each tensor
  float scale = 1;     // of gradients
  std::uint64_t seed = 1;
};

// Owns the tensors of one optimizer. Parameters and gradients are random in [-1, 1), state is zero.
// Gradients of step t are a window, shifted with t, on one random array.
class TensorSet {
 public:
  static constexpr Index kShift = 17, kSteps = 210;

  TensorSet(std::vector<Index> sizes, const TensorSetOptions& options = {})
      : sizes_(std::move(sizes)), options_(options), step(sizes_.size(), 0) {
    PhiloxStream random(options.seed);
    for (const Index n : sizes_) {
      param.push_back(make(n, &random, 1));
      grads_.push_back(make(n + kShift * kSteps, &random, options.scale));
      momentum.push_back(make(options.momentum ? n : 0, nullptr, 0));
      second_moment.push_back(make(options.second_moment ? n : 0, nullptr, 0));
      extra.push_back(make(options.extra ? n : 0, nullptr, 0));
      group.push_back(0);
    }
    set_step(0);
  }

  Index tensors() const { return static_cast<Index>(sizes_.size()); }
  Index size(Index i) const { return sizes_[static_cast<std::size_t>(i)]; }

  // Points the gradients at those of step t.
  void set_step(Index t) {
    for (std::size_t list = 0; list < 5; ++list) views_[list].clear();
    for (Index i = 0; i < tensors(); ++i) {
      views_[0].push_back(view(param, i, 0));
      views_[1].push_back(view(grads_, i, t * kShift));
      if (options_.momentum) views_[2].push_back(view(momentum, i, 0));
      if (options_.second_moment) views_[3].push_back(view(second_moment, i, 0));
      if (options_.extra) views_[4].push_back(view(extra, i, 0));
    }
  }

  kernels::MultiTensorLists lists() {
    return {views_[0], views_[1], views_[2], views_[3], views_[4], group, step};
  }
  kernels::MultiTensorPlan plan() { return kernels::MultiTensorPlan::build_or_throw(lists()); }
  TensorView& view_of(kernels::Slot slot, Index i) {
    return views_[static_cast<std::size_t>(slot)][static_cast<std::size_t>(i)];
  }

  std::span<float> values(std::vector<std::vector<float>>& list, Index i) {
    return {list[static_cast<std::size_t>(i)].data() + options_.misalign,
            list[static_cast<std::size_t>(i)].size() - static_cast<std::size_t>(options_.misalign)};
  }
  std::span<float> grad(Index i) {
    return {view_of(kernels::Slot::Grad, i).as<float>(), static_cast<std::size_t>(size(i))};
  }

  // Parameters and state, for bit comparison.
  std::vector<std::vector<float>> snapshot() const {
    std::vector<std::vector<float>> all;
    for (const auto* list : {&param, &momentum, &second_moment, &extra}) {
      all.insert(all.end(), list->begin(), list->end());
    }
    return all;
  }

  std::vector<std::vector<float>> param, momentum, second_moment, extra;

 private:
  std::vector<float> make(Index n, PhiloxStream* random, float scale) const {
    std::vector<float> data(static_cast<std::size_t>(n + options_.misalign), 0.0f);
    for (float& value : data) {
      if (random != nullptr) value = (random->uniform() * 2 - 1) * scale;
    }
    return data;
  }
  TensorView view(std::vector<std::vector<float>>& list, Index i, Index offset) const {
    return {list[static_cast<std::size_t>(i)].data() + options_.misalign + offset, Dtype::Float32,
            Shape{size(i)}};
  }

  std::vector<Index> sizes_;
  TensorSetOptions options_;
  std::vector<std::vector<float>> grads_;
  std::vector<TensorView> views_[5];

 public:
  std::vector<std::uint16_t> group;
  std::vector<Index> step;
};

// NaN-safe comparison of bits.
inline bool same_bits(const std::vector<std::vector<float>>& a,
                      const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    if (!a[i].empty() && std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace hone::test
