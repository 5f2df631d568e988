// SPDX-License-Identifier: Apache-2.0
// Trains a classifier with part contrast on a folder of images, in a loop of one's own. (With
// checkpoints and guards: `hone train paco --config paco.toml`.)
//   train_paco [FOLDER | leaves [STEPS [WEIGHTS.safetensors]]]
// The exit status is 1 if the accuracy is below 1.5 times that of chance.
#include <hone/data/leaves/leaves.h>
#include <hone/train/interop.h>
#include <hone/train/nn/load_weights.h>
#include <hone/train/optim/adam.h>
#include <hone/train/optim/lr/composed_lr.h>
#include <hone/train/optim/lr/decay_lr.h>
#include <hone/train/paco/model.h>
#include <hone/train/task/vision/prefetcher.h>
#include <hone/train/task/vision/score_images.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

using hone::Index;
namespace data = hone::data;
namespace paco = hone::paco;
namespace task = hone::task;

constexpr Index kSide = 64, kBatch = 32, kWorkers = 2, kAhead = 4, kSeed = 1;
constexpr Index kEasyClasses = 4;  // of leaves

data::ImageCorpus load(const std::string& path) {
  hone::Executor& executor = hone::libtorch_executor();
  if (path != data::kLeavesName) return data::load_images(path, {.side = kSide}, executor);
  const data::LeavesOptions easy{.classes = kEasyClasses, .size = kSide, .difficulty = 0.2};
  return data::leaves_corpus(easy, {}, executor);
}

paco::PacoModel make_model(const data::ImageCorpus& corpus) {
  paco::PacoModelOptions options{.classes = static_cast<Index>(corpus.classes.size()),
                                 .seed = kSeed};
  options.backbone = {.name = "resnet20",
                      .channels = corpus.shape.channels,
                      .height = corpus.shape.height,
                      .image_width = corpus.shape.width};
  return paco::PacoModel(options);
}

void train(paco::PacoModel& model, const task::ImageBatches& images, Index steps) {
  hone::optim::AdamW optimizer(model->parameters(),
                               hone::optim::AdamWOptions(1e-3).weight_decay(1e-4));
  const Index warm_up = steps / 10;
  hone::optim::WarmupLR schedule(
      optimizer, {.steps = warm_up},
      std::make_shared<hone::optim::CosineLR>(optimizer, steps - warm_up, 1e-4));
  task::Prefetcher batches(images, kWorkers, kAhead, steps * kBatch);
  for (Index step = 0; step < steps; ++step) {
    const auto batch = task::to_tensors(batches.take(step * kBatch, kBatch), images.shape());
    const auto views = batch[0].chunk(2);  // of the same images, in the same order
    model->set_epoch(step * kBatch / images.images_per_epoch());
    optimizer.zero_grad();
    const paco::PacoOutput out = model->forward(views[0], views[1], batch[1]);
    out.total.backward();
    optimizer.step_with({.clip_norm = 1});
    schedule.step();
    if (step % 20 != 0 && step + 1 != steps) continue;
    std::cout << "step " << step + 1 << ": cross entropy " << out.ce.item<double>()
              << ", part contrast " << out.pac.item<double>() << ", alignment "
              << out.soc.item<double>() << ", active anchors "
              << 100 * out.parts.active_share.item<double>() << " %\n";
  }
}

double held_out_accuracy(paco::PacoModel& model, const task::ImageBatches& images) {
  const torch::NoGradGuard no_grad;
  model->eval();
  const Index all = images.images_per_epoch();
  Index right = 0;
  for (Index first = 0; first < all; first += kBatch) {
    const Index count = std::min(kBatch, all - first);
    const auto batch = task::to_tensors(images.make(first, count), images.shape());
    const torch::Tensor logits = model->forward(batch[0]).logits;
    right += logits.argmax(1).eq(batch[1]).sum().item<Index>();
  }
  return static_cast<double>(right) / static_cast<double>(all);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const data::ImageCorpus corpus = load(argc > 1 ? argv[1] : "leaves");
    const Index steps = argc > 2 ? std::atoll(argv[2]) : 500;
    if (steps < 1)
      throw std::invalid_argument(std::string("expected steps above 0, got ") + argv[2]);
    paco::PacoModel model = make_model(corpus);
    if (argc > 3) hone::nn::load_weights(*model->backbone, argv[3]);
    const task::ChannelStats stats = task::measure_channels(corpus.train, corpus.shape);
    const data::AugmentOptions augment{
        .flip = 0.5, .ops = 2, .magnitude = 5, .occlude = 0.3, .shuffle = 0.3};
    std::cout << std::setprecision(4);
    train(model, task::ImageBatches(corpus.train, corpus.shape, stats, kSeed, augment, 2), steps);
    const double accuracy =
        held_out_accuracy(model, task::ImageBatches(corpus.held_out, corpus.shape, stats, kSeed));
    std::cout << "held-out accuracy " << 100 * accuracy << " %\n";
    const double chance = 1 / static_cast<double>(corpus.classes.size());
    return accuracy > 1.5 * chance ? 0 : 1;
  } catch (const hone::Error& error) {
    std::cerr << "train_paco: " << error.what() << "\n";
    return hone::exit_status(error.category());
  } catch (const std::exception& error) {
    std::cerr << "train_paco: " << error.what() << "\n";
    return 1;
  }
}
