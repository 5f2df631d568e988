// SPDX-License-Identifier: Apache-2.0
// A LibTorch training loop with hone's AdamW: `torch::optim` became `hone::optim`, nothing else.
#include <hone/train/optim/adam.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(2, 32), torch::nn::Tanh(),
                              torch::nn::Linear(32, 1));
  hone::optim::AdamW optimizer(model->parameters(), hone::optim::AdamWOptions(1e-2));
  double loss_value = 1;
  for (int step = 0; step < 300; ++step) {
    const torch::Tensor x = torch::rand({64, 2});
    const torch::Tensor target = (x.select(1, 0) * x.select(1, 1)).unsqueeze(1);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(model->forward(x), target);
    loss.backward();
    optimizer.step();
    loss_value = loss.item<double>();
  }
  std::cout << "loss " << loss_value << "\n";
  return loss_value < 2e-3 ? 0 : 1;
}
