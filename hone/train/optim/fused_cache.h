// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "hone/train/optim/device_step.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// What the fused path keeps between steps. The plan holds addresses of `steps`.
struct MultiTensorOptimizer::FusedCache {
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  using States = ska::flat_hash_map<void*, std::unique_ptr<ParamState>>;

  std::vector<TensorView> param, grad, momentum, second_moment, extra, average;
  std::vector<TensorView> momentum_scale, second_moment_scale;
  std::vector<std::uint16_t> group;
  std::vector<std::uint32_t> rounding_key;
  std::vector<Index> steps, row_length;
  std::vector<kernels::TAMMethod> methods;
  std::vector<double*> correlation;  // null for rules without
  kernels::MultiTensorPlan plan;
  struct Stepped {
    StateFields fields;
    Index parameter;
    void* key;  // in the map of states
    const ParamState* state;
  };
  std::vector<Stepped> stepped;  // the tensors of the plan
  SlotUse use;
  std::unique_ptr<DeviceStep> device;  // of tensors that are not the CPU's

  // Fills the lists that a plan is made of.
  void read(const std::vector<Active>& active, const SlotUse& slots);
  kernels::MultiTensorLists lists() {
    return {param,   grad, momentum,       second_moment,       extra,      group,       steps,
            average, {},   momentum_scale, second_moment_scale, row_length, rounding_key};
  }
  // Over all tensors; of rows their mean first.
  double mean_correlation() const;
  // Gives the tensors of the plan, whose counters are read, to `device`.
  void take_to_device();
  // t and s that a device holds come into these states, those of them that the plan was made for.
  void fetch_from_device(const States& states);
  // A plan for other states must be made, and s in memory counts.
  void drop_device();

  // Notes who the plan was made for.
  void remember(const Groups& groups, const States& states, const std::vector<Active>& active);
  void forget() {
    known_.clear();
    state_places_.clear();
    layouts_.clear();
    gradients_moved_ = false;
  }
  // Does the plan stand? It does where everything is at the addresses that were remembered, or only
  // gradients are elsewhere, in type and layout as before (callers free them every step): those it
  // follows. Reads the step counters. Looking at thousands of small tensors costs as much as
  // stepping them, so all threads look. Where it stands, versions are bumped.
  bool follow(const Groups& groups, const States& states, bool writes_grads);
  // For autograd: a parameter with a gradient and, with `grad`, that gradient are written to. As of
  // LibTorch's fused operators, a step that is then skipped counts too.
  static void bump_versions(const torch::Tensor& param, bool grad);

 private:
  // Where a tensor was. Addresses only: a cache must not keep freed tensors alive.
  struct Place {
    const torch::Tensor* handle = nullptr;  // of state; of others it may move
    const c10::TensorImpl* impl = nullptr;
    const c10::StorageImpl* storage = nullptr;
    const void* data = nullptr;   // of the storage
    c10::DeleterFnPtr deleter{};  // of the data: another one where they became copy-on-write
    Index offset = 0, elements = 0;
    at::ScalarType type{};

    static Place of(const torch::Tensor& tensor);
    bool holds(const torch::Tensor& tensor) const;
    void prefetch() const;
  };
  // One parameter.
  struct Known {
    std::uint32_t group, place;                   // within the group
    Place param, grad;                            // grad.impl null: no gradient
    Index tensor;                                 // of the plan
    std::size_t layout = 0, dimensions = 0;       // sizes, then strides: of layouts_
    std::size_t first_state = 0, last_state = 0;  // of state_places_
    Index* step;
    const void *state, *probe, *autograd, *version;
  };

  Known describe(const torch::Tensor& p, const Active& active, const States& states);
  void prefetch(const Known& one) const;
  bool follow(Known& one, const torch::Tensor& param, const States& states);
  bool has_layout(const Known& one, const torch::Tensor& tensor) const;
  bool follow_gradient(Known& one, const torch::Tensor& param, const torch::Tensor& grad);

  std::atomic<bool> gradients_moved_{false};
  std::vector<Known> known_;  // every parameter; empty: nothing is known
  std::vector<Place> state_places_;
  std::vector<Index> layouts_;
  std::vector<std::size_t> group_sizes_;
};

// In scope Model every parameter keeps a copy of the one s; parameters without gradient in a step
// fall behind, so the copy that has seen most steps counts: which it is.
Index latest_of(std::span<const Index> steps);

}  // namespace hone::optim
