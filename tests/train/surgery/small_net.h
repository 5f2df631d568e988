// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <string>

#include "hone/train/surgery/slot.h"

namespace hone::nn {

struct MlpImpl : torch::nn::Cloneable<MlpImpl> {
  MlpImpl() { reset(); }
  void reset() override {
    up = register_module("up", Slot(torch::nn::Linear(8, 16)));
    down = register_module("down", Slot(torch::nn::Linear(16, 8)));
    typed = register_module("typed", torch::nn::Linear(8, 8));
  }
  torch::Tensor forward(const torch::Tensor& x) { return typed(down(at::tanh(up(x)))); }

  Slot up{nullptr}, down{nullptr};
  torch::nn::Linear typed{nullptr};
};
TORCH_MODULE(Mlp);

// Every block adds to x; `head` is a Sequential with names, and `unused` is never called.
struct SmallNetImpl : torch::nn::Cloneable<SmallNetImpl> {
  explicit SmallNetImpl(std::int64_t blocks = 2) : count(blocks) { reset(); }
  void reset() override {
    torch::nn::ModuleList list;
    for (std::int64_t i = 0; i < count; ++i) list->push_back(Mlp());
    layers = register_module("layers", list);
    torch::nn::Sequential named;
    named->push_back("norm", torch::nn::Linear(8, 8));
    named->push_back("act", torch::nn::Tanh());
    named->push_back("out", torch::nn::Linear(8, 3));
    head = register_module("head", named);
    unused = register_module("unused", Slot(torch::nn::Linear(8, 8)));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& layer : *layers) x = x + layer->as<Mlp>()->forward(x);
    return head->forward(x);
  }

  std::int64_t count;
  torch::nn::ModuleList layers{nullptr};
  torch::nn::Sequential head{nullptr};
  Slot unused{nullptr};
};
TORCH_MODULE(SmallNet);

}  // namespace hone::nn
