// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <vector>

#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "tests/kernels/kernel_support.h"

namespace hone::test {

// Types and layout of one tensor's slots; slots but grad have the strides of param.
struct MixedTensor {
  Shape shape;
  Dtype param = Dtype::Float32, grad = Dtype::Float32;
  Dtype momentum = Dtype::Float32, second_moment = Dtype::Float32;
  Shape strides = shape.contiguous_strides(), grad_strides = strides;

  Dtype type_of(kernels::Slot slot) const {
    if (slot == kernels::Slot::Param) return param;
    if (slot == kernels::Slot::Grad) return grad;
    if (slot == kernels::Slot::Momentum) return momentum;
    return slot == kernels::Slot::SecondMoment ? second_moment : Dtype::Float32;
  }
};

struct MixedSlots {
  bool momentum = true, second_moment = false, extra = false, ema = false, copy = false;
  Dtype copy_type = Dtype::BFloat16;
};

// Owns tensors of any types: parameters and gradients random in (-1, 1), all else zero.
class MixedSet {
 public:
  using Slot = kernels::Slot;

  explicit MixedSet(std::vector<MixedTensor> tensors, const MixedSlots& used = {})
      : group(tensors.size(), 0), step(tensors.size(), 0), tensors_(std::move(tensors)) {
    const bool there[] = {true,       true,     used.momentum, used.second_moment,
                          used.extra, used.ema, used.copy};
    for (int s = 0; s < kernels::kSlots; ++s) {
      for (std::size_t i = 0; there[s] && i < tensors_.size(); ++i) add(s, i, used.copy_type);
    }
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) rounding_key.push_back(i);
    for (Index i = 0; i < static_cast<Index>(tensors_.size()); ++i) {
      write(Slot::Param, i, kernels::test::random_values(elements(i), 50 + i));
      draw_gradient(i, 0);
    }
  }

  Index tensors() const { return static_cast<Index>(tensors_.size()); }
  Index elements(Index i) const { return tensors_[static_cast<std::size_t>(i)].shape.elements(); }
  void draw_gradient(Index i, Index t, float size = 1) {
    const auto seed = static_cast<std::uint64_t>(1000 + 100 * t + i);
    write(Slot::Grad, i, kernels::test::random_values(elements(i), seed, size));
  }
  void draw_gradients(Index t) {
    for (Index i = 0; i < tensors(); ++i) draw_gradient(i, t);
  }

  TensorView& view_of(Slot slot, Index i) { return views_[int(slot)][std::size_t(i)]; }
  TensorView& scale_of(Slot slot, Index i) { return scale_views_[int(slot)][std::size_t(i)]; }

  // Values in memory order of the slot, rounded to nearest.
  void write(Slot slot, Index i, const std::vector<float>& values) {
    const TensorView& view = view_of(slot, i);
    if (values.empty()) return;
    if (view.dtype == Dtype::Float32) {
      std::memcpy(view.data, values.data(), values.size() * sizeof(float));
    } else {
      kernels::encode_chunk_ref(values.data(), {.nearest = true}, chunk(slot, i));
    }
  }
  std::vector<float> read(Slot slot, Index i) {
    const TensorView& view = view_of(slot, i);
    std::vector<float> values(static_cast<std::size_t>(elements(i)));
    if (view.dtype != Dtype::Float32) {
      kernels::decode_chunk_ref(chunk(slot, i), values.data());
    } else if (!values.empty()) {
      std::memcpy(values.data(), view.data, values.size() * sizeof(float));
    }
    return values;
  }

  // The lists of tensors [begin, end).
  kernels::MultiTensorLists lists(Index begin, Index end) {
    const auto from = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(end) - from;
    const auto part = [&](auto& list) {
      return std::span(list).subspan(list.empty() ? 0 : from, list.empty() ? 0 : count);
    };
    return {part(views_[0]),
            part(views_[1]),
            part(views_[2]),
            part(views_[3]),
            part(views_[4]),
            part(group),
            part(step),
            part(views_[5]),
            part(views_[6]),
            part(scale_views_[2]),
            part(scale_views_[3]),
            part(row_length),
            part(rounding_key)};
  }
  kernels::MultiTensorLists lists() { return lists(0, tensors()); }
  kernels::MultiTensorPlan plan() { return kernels::MultiTensorPlan::build_or_throw(lists()); }

  // Everything owned, for comparison; without gradients, the state that steps leave.
  std::vector<std::vector<std::byte>> bytes(bool gradients = true) const {
    std::vector<std::vector<std::byte>> all;
    for (int s = 0; s < kernels::kSlots; ++s) {
      if (s == int(Slot::Grad) && !gradients) continue;
      all.insert(all.end(), storage_[s].begin(), storage_[s].end());
      all.insert(all.end(), scales_[s].begin(), scales_[s].end());
    }
    return all;
  }

  std::vector<std::uint16_t> group;
  std::vector<Index> step, row_length;
  std::vector<std::uint32_t> rounding_key;

 private:
  void add(int s, std::size_t i, Dtype copy_type) {
    const MixedTensor& tensor = tensors_[i];
    const Slot slot{s};
    const Dtype dtype = slot == Slot::Copy ? copy_type : tensor.type_of(slot);
    const Shape& strides = slot == Slot::Grad ? tensor.grad_strides : tensor.strides;
    const Index count = tensor.shape.elements(), blocks = ceil_div(count, kernels::kCodeBlock);
    storage_[s].emplace_back(static_cast<std::size_t>(count * bytes_of(dtype)));
    scales_[s].emplace_back(static_cast<std::size_t>(blocks) * sizeof(float));
    views_[s].emplace_back(storage_[s].back().data(), dtype, tensor.shape, strides);
    scale_views_[s].emplace_back(scales_[s].back().data(), Dtype::Float32, Shape{blocks});
  }
  kernels::NarrowChunk chunk(Slot slot, Index i) {
    const TensorView& view = view_of(slot, i);
    return {view.dtype, view.data, scale_of(slot, i).as<float>(), elements(i)};
  }

  std::vector<MixedTensor> tensors_;
  std::vector<std::vector<std::byte>> storage_[kernels::kSlots], scales_[kernels::kSlots];
  std::vector<TensorView> views_[kernels::kSlots], scale_views_[kernels::kSlots];
};

}  // namespace hone::test
