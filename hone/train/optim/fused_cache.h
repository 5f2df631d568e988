// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "hone/train/optim/device_step.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// Data that the fused path keeps between steps. The plan contains addresses of `steps`.
struct MultiTensorOptimizer::FusedCache {
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  using States = ska::flat_hash_map<void*, std::unique_ptr<ParamState>>;

  std::vector<TensorView> param, grad, momentum, second_moment, extra, average;
  std::vector<TensorView> momentum_scale, second_moment_scale;
  std::vector<std::uint16_t> group;
  std::vector<std::uint32_t> rounding_key;
  std::vector<Index> steps, row_length;
  kernels::MultiTensorPlan plan;
  struct Stepped {
    StateFields fields;
    Index parameter;
    void* key;  // in the map of states
    ParamState* state;
  };
  std::vector<Stepped> stepped;  // the tensors of the plan
  SlotUse use;
  std::unique_ptr<DeviceStep> device;  // for tensors that are not on the CPU

  // Fills the lists that a plan is made of.
  void read(const std::vector<Active>& active, const SlotUse& slots, std::uint32_t first_parameter);
  kernels::MultiTensorLists lists() {
    return {param,   grad, momentum,       second_moment,       extra,      group,       steps,
            average, {},   momentum_scale, second_moment_scale, row_length, rounding_key};
  }
  // Drops the device's step, so that the next plan starts from the contents of the states.
  void drop_device();

  // Notes which parameters and states the plan was made for.
  void remember(const Groups& groups, const std::vector<Active>& active);
  void forget() { known_.clear(); }
  // Returns false if the plan no longer describes the tensors and a new one is necessary. Reads the
  // step counters, and follows gradients at new addresses (callers free them every step).
  bool follow(const Groups& groups, const States& states);

 private:
  // One parameter of the groups, in order. Addresses only: a cache must not keep freed tensors
  // alive.
  struct Known {
    std::size_t group = 0, place = 0;
    const void* param = nullptr;  // its TensorImpl, the key of the state
    Index tensor = -1;            // of the plan; -1: it had no gradient
  };

  bool follow(const Known& one, const torch::Tensor& param, const States& states);

  std::vector<Known> known_;  // empty: no plan
  std::vector<std::size_t> group_sizes_;
  bool gradients_moved_ = false;  // on a device
};

}  // namespace hone::optim
