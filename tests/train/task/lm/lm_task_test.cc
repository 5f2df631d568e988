// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/lm_task.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "hone/core/error.h"
#include "hone/train/task/lm/lm_config.h"
#include "tests/support/host_reads.h"

namespace hone::task {
namespace {

constexpr Index kVocab = 29;

nn::Llama tiny_model() {
  LmConfig config;
  config.model = {
      .hidden_size = 16, .intermediate_size = 24, .layers = 1, .heads = 2, .context = 8};
  return nn::Llama(make_architecture(config, kVocab), 3);
}

std::vector<text::TokenId> some_tokens(Index count) {
  std::vector<text::TokenId> tokens;
  for (Index i = 0; i < count; ++i) tokens.push_back(static_cast<text::TokenId>(i * i % kVocab));
  return tokens;
}

LmTask task_over(const nn::Llama& model, const HeldOutText& held_out, Index validation_tokens) {
  return {model, TokenWindows(some_tokens(100), 8, 1), held_out, 2, 1, validation_tokens};
}

TEST(LmTask, validates_each_document_from_its_own_beginning) {
  const nn::Llama model = tiny_model();
  HeldOutText held_out{{some_tokens(22), {5, 20, 22}}, {}};
  for (Index id = 0; id < kVocab; ++id) held_out.bytes_of_token.push_back(id % 4);
  // Windows of 8 tokens; the second and third document lead with the token before them.
  double nats = 0;
  Index predicted = 0, bytes = 0;
  for (const auto& [begin, end] : {std::pair{0, 5}, {4, 12}, {12, 20}, {19, 22}}) {
    const std::vector<std::int64_t> row(held_out.stream.ids.begin() + begin,
                                        held_out.stream.ids.begin() + end);
    const torch::Tensor ids = at::tensor(row).unsqueeze(0);
    const auto length = ids.size(1) - 1;
    nats +=
        model
            ->loss_sum(ids.narrow(1, 0, length).contiguous(), ids.narrow(1, 1, length).contiguous())
            .item<double>();
    predicted += length;
    for (std::size_t i = 1; i < row.size(); ++i) bytes += row[i] % 4;
  }
  const trainer::Validation got = task_over(model, held_out, 1000).validate(true, {});
  EXPECT_NEAR(got.loss, nats / static_cast<double>(predicted), 1e-6);
  EXPECT_NEAR(got.bits_per_byte, nats / std::numbers::ln2 / static_cast<double>(bytes), 1e-6);
}

TEST(LmTask, takes_whole_windows_up_to_the_validation_tokens) {
  const nn::Llama model = tiny_model();
  const std::vector<Index> ones(kVocab, 1);
  const auto loss_of = [&](Index tokens, Index validation_tokens, bool all) {
    const HeldOutText text{{some_tokens(tokens), {tokens}}, ones};
    return task_over(model, text, validation_tokens).validate(all, {}).loss;
  };
  EXPECT_NEAR(loss_of(80, 17, false), loss_of(16, 17, true), 1e-6);
  EXPECT_NEAR(loss_of(80, 2, false), loss_of(8, 2, true), 1e-6);
  EXPECT_GT(std::abs(loss_of(80, 17, true) - loss_of(16, 17, true)), 1e-3);
}

TEST(LmTask, names_every_batch_of_a_validation_and_ends_where_that_throws) {
  const HeldOutText text{{some_tokens(81), {81}}, std::vector<Index>(kVocab, 1)};
  LmTask task = task_over(tiny_model(), text, 16);
  for (int halved = 0; halved < 10; ++halved) task.halve_validation_batches();
  Index done = 0, windows = 0;
  task.validate(true, [&](Index samples, Index of) {
    EXPECT_EQ(samples, done++) << "4 tokens a batch: one window";
    windows = of;
  });
  EXPECT_EQ(done, windows + 1);
  EXPECT_GT(windows, 5);
  const auto stop = [](Index samples, Index) {
    if (samples > 1) throw Error(ErrorCategory::Cancelled, "stop");
  };
  EXPECT_THROW(task.validate(true, stop), Error);
}

// Tensors that are not fp32 on the CPU go through the operators that those on another device do.
TEST(LmTask, reads_no_tensor_before_the_loss_is_read) {
  nn::Llama model = tiny_model();
  model->set_recompute_every(1);
  model->to(at::kDouble);
  LmTask task = task_over(model, {{some_tokens(22), {22}}, std::vector<Index>(kVocab, 1)}, 1000);
  const test::HostReads reads;
  const trainer::LossSum loss = task.micro_batch(0, 0);
  (loss.sum / task.nominal_weight()).backward();
  EXPECT_EQ(reads.count(), 0);
  EXPECT_GT(loss.sum.item<double>(), 0);
  for (const trainer::CheckpointTensor& weight : task.weights()) {
    EXPECT_TRUE(weight.value.grad().defined()) << weight.name;
  }
}

// Module::to() moves parameters and buffers, and nothing else.
TEST(LmTask, has_the_tables_of_its_positions_as_buffers) {
  nn::Llama model = tiny_model();
  ASSERT_EQ(model->buffers().size(), 2u);
  model->to(at::kDouble);
  for (const torch::Tensor& buffer : model->buffers()) {
    EXPECT_EQ(buffer.scalar_type(), at::kDouble);
  }
}

}  // namespace
}  // namespace hone::task
