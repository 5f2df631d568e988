// SPDX-License-Identifier: Apache-2.0
// The example of docs/guide-amp.md, compiled and run.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <sstream>

#include "hone/core/file/file_io.h"
#include "hone/train/amp/amp_stats.h"
#include "hone/train/amp/emulated_half.h"
#include "hone/train/amp/grad_scaler.h"
#include "hone/train/optim/adam.h"
#include "tests/support/test_data.h"

namespace nn = torch::nn;
using hone::amp::AmpPhase;

// begin of the guide's example
struct Outcome {
  double last_loss = 0;
  hone::amp::AmpAnalysis analysis;
};

Outcome train(nn::Sequential layers, const std::vector<torch::Tensor>& batches, double init_scale) {
  hone::amp::EmulatedHalf model(layers);  // fp16's numerics on a CPU
  hone::optim::AdamW optimizer(model->parameters(), hone::optim::AdamWOptions(1e-2));
  hone::amp::GradScaler scaler({.init_scale = init_scale, .growth_interval = 200});
  hone::amp::AmpStats stats("emulated fp16 on cpu");
  Outcome run;
  for (std::size_t step = 0; step < batches.size(); ++step) {
    torch::Tensor loss;
    {
      const auto timer = stats.time(AmpPhase::Forward);
      loss = nn::functional::mse_loss(model->forward(batches[step]), batches[step]);
    }
    {
      const auto timer = stats.time(AmpPhase::Backward);
      scaler.scale(loss).backward();
    }
    if (step % 20 == 0) {  // gradients still carry the scale
      const double scale = scaler.get_scale();
      stats.observe(hone::amp::measure_gradients(optimizer, scale, 1 / scale));
    }
    const auto timer = stats.time(AmpPhase::Optimizer);
    // Finite check, unscaling, clipping and AdamW in fused passes.
    const auto report = scaler.step(optimizer, {.clip_norm = 1});
    stats.record(static_cast<hone::Index>(step), scaler.update());
    optimizer.zero_grad();
    if (report.stepped) run.last_loss = loss.item<double>();
  }
  run.analysis = analyze(stats);
  return run;
}
// end of the guide's example

namespace hone::amp {
namespace {

nn::Sequential make_layers() {
  torch::manual_seed(1);
  return nn::Sequential(nn::Linear(8, 16), nn::Tanh(), nn::Linear(16, 8));
}

std::vector<torch::Tensor> make_batches(std::size_t count) {
  torch::manual_seed(2);
  std::vector<torch::Tensor> batches;
  for (std::size_t i = 0; i < count; ++i) batches.push_back(torch::randn({32, 8}));
  return batches;
}

TEST(GuideAmp, the_example_trains_and_observes) {
  const Outcome run = train(make_layers(), make_batches(300), 0x1p24);
  EXPECT_LT(run.last_loss, 0.5);
  EXPECT_EQ(run.analysis.steps, 300);
  EXPECT_GT(run.analysis.overflow_count, 0) << "2^24 is too much for fp16";
  EXPECT_LT(run.analysis.final_scale, 0x1p24);
  EXPECT_GT(run.analysis.gradients.largest, 0);
  EXPECT_GT(run.analysis.backward_seconds, 0);
}

// The gradient of the last batch, after steps on the others that clear what they used.
torch::Tensor last_gradient(const std::vector<torch::Tensor>& batches) {
  EmulatedHalf model(make_layers());
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(0));  // weights stay
  GradScaler scaler({.init_scale = 16});
  torch::Tensor gradient;
  for (const torch::Tensor& x : batches) {
    scaler.scale((model->forward(x) - x).square().mean()).backward();
    gradient = model->parameters()[0].grad().clone();
    scaler.step(optimizer, {.grad = GradWriteBack::Zero});
    scaler.update();
  }
  return gradient;
}

TEST(GuideAmp, a_steps_gradient_does_not_depend_on_the_data_of_the_step_before) {
  const auto batches = make_batches(2);
  const torch::Tensor alone = last_gradient({batches[1]});
  EXPECT_TRUE(last_gradient({batches[0], batches[1]}).equal(alone));
  EXPECT_TRUE(last_gradient({batches[0] * 100, batches[1]}).equal(alone));
  EXPECT_GT(alone.abs().max().item<float>(), 0);
}

std::string text_of(const char* path) { return read_text_file(test::source_file(path)); }

TEST(GuideAmp, the_guide_shows_this_files_example) {
  const std::string guide = text_of("docs/guide-amp.md");
  const std::string source = text_of("tests/train/amp/guide_example_test.cc");
  const std::string begin = "// begin of the guide's example\n";
  const std::size_t from = source.find(begin) + begin.size();
  const std::string example =
      source.substr(from, source.find("// end of the guide's", from) - from);
  EXPECT_NE(guide.find("```cpp\n" + example + "```"), std::string::npos);
}

}  // namespace
}  // namespace hone::amp
