// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/kernels/multi_tensor/schedule/fused_step.h"

namespace hone::kernels {

// A rule whose scalars depend on a tensor's group, its step and the scale of gradients alone, and
// whose chunks go through for_each_vector.
template <class Group, class Scalars>
class ElementwiseStep final : public StepRule {
 public:
  using MakeScalars = Scalars (*)(const Group& group, Index t, double grad_scale);
  using UpdateChunk = void (*)(const ChunkOperands&, const Scalars&);

  ElementwiseStep(const MultiTensorPlan& plan, std::span<const Group> groups, MakeScalars make,
                  UpdateChunk update_chunk)
      : plan_(plan),
        groups_(groups),
        make_(make),
        update_(update_chunk),
        scalars_(static_cast<std::size_t>(plan.tensors())) {}

  void prepare(Index tensor, const TorqueSums&, double grad_scale) override {
    const Index t = plan_.step()[static_cast<std::size_t>(tensor)] + 1;
    const std::uint16_t group = plan_.tensor(tensor).group;
    Scalars& own = scalars_[static_cast<std::size_t>(tensor)];
    // Neighbors mostly share group and step: logarithms once.
    if (tensor > 0 && known_t_ == t && known_group_ == group && known_scale_ == grad_scale) {
      own = scalars_[static_cast<std::size_t>(tensor) - 1];
      return;
    }
    own = make_(groups_[group], t, grad_scale);
    known_t_ = t;
    known_group_ = group;
    known_scale_ = grad_scale;
  }
  void update(Index tensor, const ChunkOperands& chunk, bool) const override {
    update_(chunk, scalars_[static_cast<std::size_t>(tensor)]);
  }
  bool takes_narrow_moments(Index /*tensor*/) const override { return true; }
  Index temporary_bytes() const override {
    return static_cast<Index>(scalars_.size() * sizeof(Scalars));
  }

 private:
  const MultiTensorPlan& plan_;
  std::span<const Group> groups_;
  MakeScalars make_;
  UpdateChunk update_;
  std::vector<Scalars> scalars_;
  Index known_t_ = 0;
  std::uint16_t known_group_ = 0;
  double known_scale_ = 0;
};

}  // namespace hone::kernels
