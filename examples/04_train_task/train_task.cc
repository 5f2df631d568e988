// SPDX-License-Identifier: Apache-2.0
// Teaches a small network y = sin(3x) with hone's trainer. Press Ctrl-C, or kill it, and start it
// again: it continues from its last checkpoint, bit for bit.
//   train_task FOLDER
#include <ATen/CPUGeneratorImpl.h>
#include <hone/train/optim/adam.h>
#include <hone/train/optim/lr/decay_lr.h>
#include <hone/train/trainer/trainer.h>
#include <torch/torch.h>

#include <csignal>
#include <iostream>
#include <stop_token>
#include <thread>

namespace {

namespace trainer = hone::trainer;
using hone::Index;

constexpr Index kSteps = 400, kMicroBatches = 2, kSamples = 64;

// What is trained: a model on its data.
class SineTask final : public trainer::Task {
 public:
  // The samples are drawn from the number of the step, so that a resumed run sees the same ones.
  trainer::LossSum micro_batch(Index step, Index micro) override {
    const auto seed = static_cast<std::uint64_t>(step * kMicroBatches + micro);
    return loss_on(torch::rand({kSamples, 1}, at::detail::createCPUGenerator(seed)) * 2 - 1);
  }
  double nominal_weight() const override { return kSamples; }
  trainer::Validation validate(bool /*all*/, const trainer::BatchDone&) override {
    const trainer::LossSum loss = loss_on(torch::linspace(-1, 1, 1000).unsqueeze(1));
    return {.loss = loss.sum.item<double>() / loss.weight};
  }
  std::vector<trainer::CheckpointTensor> weights() override {
    std::vector<trainer::CheckpointTensor> all;
    for (const auto& item : model_->named_parameters()) all.push_back({item.key(), item.value()});
    return all;
  }

  torch::nn::Module& model() { return *model_; }

 private:
  trainer::LossSum loss_on(const torch::Tensor& x) {
    const torch::Tensor error = model_->forward(x) - torch::sin(3 * x);
    return {.sum = error.square().sum(), .weight = static_cast<double>(x.size(0))};
  }

  torch::nn::Sequential model_{torch::nn::Linear(1, 64), torch::nn::Tanh(),
                               torch::nn::Linear(64, 1)};
};

// Ctrl-C requests a stop: a thread waits for the signal, which no other thread then takes.
std::stop_token stop_at_interrupt() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::stop_source source;
  std::thread([source, signals]() mutable {
    int signal = 0;
    sigwait(&signals, &signal);
    source.request_stop();
  }).detach();
  return source.get_token();
}

}  // namespace

int main(int argc, char** argv) {
  const std::stop_token stop = stop_at_interrupt();
  try {
    torch::manual_seed(1);
    SineTask task;
    hone::optim::AdamW optimizer(task.model().parameters(), hone::optim::AdamWOptions(1e-2));
    hone::optim::CosineLR schedule(optimizer, kSteps, 1e-4);
    trainer::Trainer loop({.steps = kSteps,
                           .accumulation_steps = kMicroBatches,
                           .clip_norm = 1,
                           .validate_every = 100,
                           .checkpoint_every = 100,
                           .folder = argc > 1 ? argv[1] : "run"});
    loop.resume(task, optimizer, schedule);
    const trainer::TrainResult result = loop.fit(task, optimizer, schedule, stop);
    if (result.resumed_from) std::cout << "resumed at step " << *result.resumed_from << "\n";
    std::cout << "held-out loss " << result.validation.loss << "\n";
    return result.validation.loss < 1e-2 ? 0 : 1;  // predicting the mean would give 0.5
  } catch (const hone::Error& error) {
    std::cerr << "train_task: " << error.what() << "\n";
    return hone::exit_status(error.category());
  }
}
