// SPDX-License-Identifier: Apache-2.0
// Where a classifier is trained, in which layout, and what it computes twice.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/train/optim/lr/decay_lr.h"
#include "hone/train/task/vision/score_images.h"
#include "hone/train/task/vision/vision_model.h"
#include "hone/train/task/vision/vision_setup.h"
#include "hone/train/trainer/memory_parts.h"
#include "hone/train/trainer/probe_step.h"
#include "tests/support/error_of.h"
#include "tests/support/host_reads.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::task {
namespace {

using test::refusal;
using testing::AllOf;
using testing::HasSubstr;
using torch::Tensor;

class VisionDevice : public testing::Test {
 protected:
  VisionDevice() {
    set_log_level(LogLevel::Error);
    test::write_bar_folder(folder_.path(), 12, 4, 60, 12);
  }
  VisionConfig with(const std::vector<std::string>& settings) const {
    VisionConfig config;
    config.data.path = folder_.path().string();
    config.trainer.micro_batch = 16;
    config.model.width = 8;
    for (const std::string& setting : settings) set_config(config, setting);
    check_config(config);
    return config;
  }

  test::TemporaryFolder folder_;
};

struct Trained {
  VisionSetup setup;
  std::shared_ptr<optim::MultiTensorOptimizer> optimizer;
  std::vector<double> losses;
};

Trained train(const VisionConfig& config, Index steps) {
  Trained out{set_up_vision(config), nullptr, {}};
  out.optimizer = make_optimizer(config, out.setup);
  for (Index step = 0; step < steps; ++step) {
    out.optimizer->zero_grad();
    const trainer::LossSum loss = out.setup.task->micro_batch(step, 0);
    (loss.sum / loss.weight).backward();
    out.optimizer->step_with({});
    out.losses.push_back(loss.sum.item<double>() / loss.weight);
  }
  return out;
}

TEST_F(VisionDevice, refuses_one_that_is_not_there_before_it_reads_data) {
  VisionConfig config = with({"trainer.device=cuda:63"});
  config.data.path = (folder_.path() / "none").string();
  EXPECT_THAT(refusal([&] { set_up_vision(config); }, ErrorCategory::Unsupported),
              HasSubstr("[trainer.device] expected a CUDA device"));
  EXPECT_THAT(refusal([&] { with({"trainer.device=gpu"}); }),
              HasSubstr("[trainer.device] expected cpu, cuda or cuda:N, got gpu"));
  const VisionConfig cpu = with({}), cuda = with({"trainer.device=cuda"});
  EXPECT_NO_THROW(check_same_run(to_json(cuda), cpu)) << "a run may go on elsewhere";
}

TEST_F(VisionDevice, reads_no_tensor_within_a_step) {
  const auto reads_of = [&](Index steps) {
    // What watches for collapses reads once in a pass over the images.
    const VisionConfig config =
        with({"model.name=resnet20", "trainer.recompute_every=1", "loss.on_collapse=off"});
    const VisionSetup setup = set_up_vision(config);
    const auto optimizer = make_optimizer(config, setup);
    optim::ExponentialLR scheduler(*optimizer, 1);
    const test::TemporaryFolder folder;
    trainer::TrainerOptions options;
    options.steps = steps;
    options.folder = folder.path();
    options.amp.precision = at::kBFloat16;
    const test::HostReads reads;
    trainer::Trainer(options).fit(*setup.task, *optimizer, scheduler, std::stop_token{});
    return reads.count();
  };
  reads_of(1);  // tries bf16, once in a process
  const auto once = reads_of(1);
  EXPECT_GT(once, 0) << "the reads are those of the last validation";
  EXPECT_EQ(reads_of(4), once);
}

TEST_F(VisionDevice, images_have_channels_last_where_told) {
  data::ImageShape shape{3, 5, 4};
  ImageValues values;
  values.count = 2;
  for (int i = 0; i < 2 * 3 * 5 * 4; ++i) values.images.push_back(static_cast<float>(i));
  values.labels = {1, 0};
  const auto plain = to_tensors(values, shape),
             last = to_tensors(values, shape, {.channels_last = true});
  EXPECT_TRUE(plain[0].is_contiguous());
  EXPECT_FALSE(last[0].is_contiguous());
  EXPECT_TRUE(last[0].is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(last[0].equal(plain[0]));
  EXPECT_EQ(plain[0].index({1, 2, 4, 3}).item<float>(), 119);
  EXPECT_TRUE(last[1].equal(plain[1]));
}

std::string bytes_of_model(const Trained& trained, const std::filesystem::path& folder) {
  write_vision_model(folder, {.net = trained.setup.model,
                              .classes = trained.setup.data->corpus.classes,
                              .stats = trained.setup.data->stats});
  return read_text_file(folder / "model.safetensors");
}

TEST_F(VisionDevice, channels_last_trains_the_same_model_and_writes_it_in_the_usual_order) {
  Index permuted = 0;  // a single channel has but one layout
  for (const char* name : {"model.name=cnn", "model.name=resnet20", "model.name=resnet18"}) {
    const VisionConfig config = with({name}), other = with({name, "model.channels_last=true"});
    const auto a = folder_.path() / "a", b = folder_.path() / "b";
    EXPECT_TRUE(bytes_of_model(train(config, 0), a) == bytes_of_model(train(other, 0), b)) << name;
    const Trained plain = train(config, 3), last = train(other, 3);
    for (std::size_t step = 0; step < plain.losses.size(); ++step) {
      const double bound = step == 0 ? 1e-4 : 0.05;
      EXPECT_NEAR(last.losses[step], plain.losses[step], bound * plain.losses[step]) << name;
    }
    for (const Tensor& parameter : last.setup.model->parameters()) {
      if (parameter.dim() != 4) continue;
      EXPECT_TRUE(parameter.is_contiguous(at::MemoryFormat::ChannelsLast)) << name;
      permuted += !parameter.is_contiguous();
    }
    // Gradients and state have the layout of their parameters, so that a step is flat.
    for (const optim::TensorPlanEntry& entry : last.optimizer->plan()) {
      EXPECT_EQ(entry.kernel, "fused") << name << " parameter " << entry.parameter;
    }
    for (const optim::NamedState& state : last.optimizer->export_state()) {
      if (state.value.dim() != 4) continue;
      EXPECT_TRUE(state.value.is_contiguous(at::MemoryFormat::ChannelsLast)) << state.name;
    }
  }
  EXPECT_GT(permuted, 20);
  EXPECT_THAT(refusal([&] {
                with({"model.name=mlp", "model.channels_last=true"});
              }),
              AllOf(HasSubstr("[model.channels_last]"), HasSubstr("model.name = mlp")));
}

TEST_F(VisionDevice, a_resnet_recomputes_its_blocks_and_keeps_the_bits) {
  const std::string name = "model.name=resnet20";
  const Trained plain = train(with({name}), 3),
                again = train(with({name, "trainer.recompute_every=2"}), 3);
  EXPECT_EQ(plain.losses, again.losses);
  const auto expected = plain.setup.task->weights(), got = again.setup.task->weights();
  ASSERT_EQ(expected.size(), got.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].value.equal(expected[i].value)) << got[i].name;
  }
  EXPECT_THAT(refusal([&] {
                with({"model.name=cnn", "trainer.recompute_every=1"});
              }),
              HasSubstr("[trainer.recompute_every]"));
  EXPECT_THAT(refusal([&] {
                with({name, "trainer.recompute_every=-1"});
              }),
              HasSubstr("[trainer.recompute_every]"));
}

TEST_F(VisionDevice, a_memory_limit_can_recompute_the_blocks_of_a_resnet) {
  EXPECT_FALSE(set_up_vision(with({"model.name=cnn"})).task->recompute_activations());
  const VisionConfig config = with({"model.name=resnet20"});
  const auto activations = [&](bool recomputes) {
    const VisionSetup setup = set_up_vision(config);
    if (recomputes) {
      EXPECT_TRUE(setup.task->recompute_activations());
      EXPECT_FALSE(setup.task->recompute_activations()) << "it is so already";
    }
    const auto optimizer = make_optimizer(config, setup);
    return trainer::measure_memory(*setup.task, *optimizer,
                                   trainer::replicate(setup.task->largest_sample(), 16), {})
        .activations;
  };
  EXPECT_LT(activations(true), activations(false) / 2);
}

}  // namespace
}  // namespace hone::task
