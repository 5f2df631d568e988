// SPDX-License-Identifier: Apache-2.0
// Loss scaling, clipping, AdamW and a schedule: what LibTorch's C++ front end leaves to its users.
#include <hone/train/amp/emulated_half.h>
#include <hone/train/amp/grad_scaler.h>
#include <hone/train/optim/adam.h>
#include <hone/train/optim/lr/decay_lr.h>
#include <torch/torch.h>

int main() {
  torch::manual_seed(1);
  torch::nn::Linear first(2, 32), second(32, 1);
  std::vector<torch::Tensor> parameters = first->parameters();
  for (const torch::Tensor& parameter : second->parameters()) parameters.push_back(parameter);

  hone::optim::AdamW optimizer(parameters, hone::optim::AdamWOptions(2e-2));
  hone::optim::CosineLR scheduler(optimizer, 400, 1e-4);
  hone::amp::GradScaler scaler({.init_scale = 1 << 24});  // too large on purpose: it backs off
  int skipped = 0;
  double loss_value = 1;
  for (int step = 0; step < 400; ++step) {
    const torch::Tensor x = torch::rand({64, 2});
    const torch::Tensor target = (x.select(1, 0) * x.select(1, 1)).unsqueeze(1);
    // Activations and gradients pass through fp16 here, as between layers on a GPU.
    const torch::Tensor hidden = hone::amp::round_through_half(torch::tanh(first->forward(x)));
    const torch::Tensor loss = torch::mse_loss(second->forward(hidden), target);
    scaler.scale(loss).backward();
    // Unscale, look for inf, clip, step and clear: one call, two passes over memory.
    scaler.step(optimizer, {.clip_norm = 1, .grad = hone::amp::GradWriteBack::Zero});
    const hone::amp::ScaleUpdate update = scaler.update();
    skipped += update.stepped ? 0 : 1;
    if (update.stepped) scheduler.step();
    if (!update.stepped) optimizer.zero_grad();
    loss_value = loss.item<double>();
  }
  std::cout << "loss " << loss_value << ", " << skipped << " steps skipped\n";
  return loss_value < 2e-3 && skipped > 0 ? 0 : 1;
}
