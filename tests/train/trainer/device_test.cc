// SPDX-License-Identifier: Apache-2.0
#include "hone/train/device.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stop_token>
#include <string>

#include "hone/train/memory/device_memory.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lr/decay_lr.h"
#include "hone/train/trainer/metrics_log.h"
#include "hone/train/trainer/trainer.h"
#include "hone/train/trainer/trainer_config.h"
#include "tests/support/error_of.h"
#include "tests/support/host_reads.h"
#include "tests/support/test_data.h"

namespace hone::trainer {
namespace {

using test::refusal;
using testing::HasSubstr;
using torch::Tensor;

TEST(Device, is_named_as_in_pytorch) {
  EXPECT_EQ(parse_device("k", "cpu"), c10::Device(c10::kCPU));
  EXPECT_EQ(parse_device("k", "cuda"), c10::Device(c10::kCUDA, 0));
  EXPECT_EQ(parse_device("k", "cuda:0"), c10::Device(c10::kCUDA, 0));
  EXPECT_EQ(parse_device("k", "cuda:13"), c10::Device(c10::kCUDA, 13));
  for (const char* bad : {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda: 1", "cuda:1x",
                          "cuda1", "cuda:64", "cuda:99999999999", "mps"}) {
    EXPECT_EQ(refusal([&] { parse_device("trainer.device", bad); }),
              std::string("[trainer.device] expected cpu, cuda or cuda:N, got ") + bad);
  }
}

TEST(Device, that_is_not_there_is_refused_in_one_sentence) {
  EXPECT_NO_THROW(select_device("k", c10::Device(c10::kCPU)));
  if (at::hasCUDA()) GTEST_SKIP() << "there is one";
  const std::string message =
      refusal([] { select_device("k", c10::Device(c10::kCUDA, 0)); }, ErrorCategory::Unsupported);
  EXPECT_THAT(message, HasSubstr("[k] expected a CUDA device"));
  EXPECT_THAT(refusal([] { const memory::DeviceMeter meter(c10::Device(c10::kCUDA, 0)); },
                      ErrorCategory::Unsupported),
              HasSubstr("memory meter"));
}

// The meta device stands for another one: it takes tensors, but has no memory.
TEST(Device, the_cpu_gets_the_tensor_itself_and_another_a_copy_there) {
  const Tensor host = at::empty({3, 2}, host_options(at::kLong, c10::Device(c10::kCPU)));
  EXPECT_EQ(host.scalar_type(), at::kLong);
  EXPECT_FALSE(host.is_pinned());
  EXPECT_TRUE(send(host, c10::Device(c10::kCPU)).is_same(host));
  const Tensor there = send(host, c10::Device(c10::kMeta));
  EXPECT_TRUE(there.is_meta());
  EXPECT_EQ(there.sizes(), host.sizes());
}

TEST(TrainerConfig, names_a_device_that_may_change_within_a_run) {
  struct Config {
    TrainerConfig trainer;
  } cpu, cuda;
  const auto entries_of = [](Config& config) {
    ConfigEntries entries;
    add_entries(entries, config.trainer, {});
    return entries;
  };
  cuda.trainer.device = "cuda:1";
  const Json recorded = entries_to_json(entries_of(cpu)), defaults = recorded;
  EXPECT_NO_THROW(check_same_entries(recorded, entries_of(cuda), defaults));
  check_config(cuda.trainer);
  EXPECT_EQ(device_of(cuda.trainer), c10::Device(c10::kCUDA, 1));
  cuda.trainer.device = "gpu";
  EXPECT_THAT(refusal([&] { check_config(cuda.trainer); }), HasSubstr("cpu, cuda or cuda:N"));
}

TEST(TrainerConfig, limits_the_memory_of_any_device) {
  TrainerConfig config;
  config.max_memory_mb = 3;
  EXPECT_EQ(max_memory_bytes(config), 3 << 20);
  config.device = "cuda";
  EXPECT_EQ(max_memory_bytes(config), 3 << 20);
  ConfigEntries entries;
  add_entries(entries, config, {});
  EXPECT_NO_THROW(check_given_entries(entries, {"trainer.max_memory_mb", "trainer.tf32"}));
  config.device = "cpu";
  ConfigEntries of_cpu;
  add_entries(of_cpu, config, {});
  EXPECT_THAT(refusal([&] { check_given_entries(of_cpu, {"trainer.tf32"}); }),
              HasSubstr("no effect with trainer.device = cpu"));
}

// Least squares on noise; no loss is read by the task.
class Noise final : public Task {
 public:
  LossSum micro_batch(Index, Index) override {
    const Tensor error = at::mv(at::randn({8, 4}), w) - 1;
    return {error.square().sum(), 8};
  }
  double nominal_weight() const override { return 8; }
  Validation validate(bool, const BatchDone&) override { return {1, 0}; }
  std::vector<CheckpointTensor> weights() override { return {{"w", w}}; }

  Tensor w = at::zeros({4}).requires_grad_(true);
};

struct Ran {
  Tensor w;
  int reads = 0;
  double loss = 0;  // of the last step
};

// Trains to `steps`, resuming what is in the folder.
Ran run(const std::filesystem::path& folder, Index steps) {
  TrainerOptions options;
  options.steps = steps;
  options.accumulation_steps = 3;
  options.folder = folder;
  options.seed = 5;
  options.amp.skip_nonfinite = true;
  Noise task;
  optim::AdamW optimizer({task.w}, optim::AdamWOptions(0.01));
  optim::ExponentialLR scheduler(optimizer, 1);
  Trainer trainer(options);
  trainer.resume(task, optimizer, scheduler);
  const test::HostReads reads;
  trainer.fit(task, optimizer, scheduler, std::stop_token{});
  const int count = reads.count();
  return {task.w.detach().clone(), count, read_metrics(folder / "metrics.csv").back().loss};
}

TEST(Trainer, reads_no_tensor_within_a_step) {
  const test::TemporaryFolder one, other;
  EXPECT_EQ(run(one.path(), 2).reads, run(other.path(), 9).reads);
  const test::HostReads reads;
  at::ones({}).item<float>();
  EXPECT_EQ(reads.count(), 1) << "they are counted";
}

// A checkpoint of a CUDA run has the state of that generator, too.
TEST(Resume, on_the_cpu_takes_a_checkpoint_of_another_device) {
  const test::TemporaryFolder whole, parts;
  const Ran expected = run(whole.path(), 8);
  run(parts.path(), 4);
  CheckpointStore store(parts.path() / "checkpoints");
  Checkpoint checkpoint = store.load(4);
  checkpoint.state.push_back({"random.cuda", at::zeros({16}, at::kByte)});
  store.clear();
  store.save(checkpoint, 2, {});
  const Ran resumed = run(parts.path(), 8);
  EXPECT_TRUE(resumed.w.equal(expected.w));
  EXPECT_EQ(resumed.loss, expected.loss);
}

}  // namespace
}  // namespace hone::trainer
