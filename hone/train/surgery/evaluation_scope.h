// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <map>

namespace hone::nn {

// Puts a model into evaluation mode, and all of its modules back into their own modes at the end.
// Modules that came in between then get the mode of the model.
class EvaluationScope {
 public:
  explicit EvaluationScope(torch::nn::Module& model) : model_(model) {
    for (const auto& module : model.modules()) modes_[module.get()] = module->is_training();
    model.eval();
  }
  ~EvaluationScope() {
    const bool mode = modes_.at(&model_);
    for (const auto& module : model_.modules()) {
      const auto known = modes_.find(module.get());
      module->train(known == modes_.end() ? mode : known->second);  // children come later
    }
  }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  torch::nn::Module& model_;
  std::map<const torch::nn::Module*, bool> modes_;
};

}  // namespace hone::nn
