// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/lm_task.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/train/device.h"
#include "hone/train/task/lm/lm_teacher.h"
#include "hone/train/task/lm/window_batches.h"

namespace hone::task {
LmTask::LmTask(nn::Llama model, TokenWindows train, HeldOutText held_out, Index micro_batch,
               Index accumulation_steps, Index validation_tokens)
    : model_(std::move(model)),
      device_(model_->parameters().front().device()),
      train_(std::move(train)),
      held_out_(std::move(held_out)),
      samples_(micro_batch * accumulation_steps),
      micro_batches_(accumulation_steps),
      validation_tokens_(validation_tokens) {
  HONE_CHECK(held_out_.stream.ids.size() >= 2, "held-out data", "at least 2 tokens",
             held_out_.stream.ids.size());
}

trainer::LossSum LmTask::micro_batch(Index step, Index micro) {
  const Index first = samples_ * micro / micro_batches_,
              end = samples_ * (micro + 1) / micro_batches_;
  const TokenBatch batch = [&] {
    HONE_TRACE_ZONE("data", {"windows", end - first});
    return train_.batch(step * samples_ + first, end - first);
  }();
  return loss_of(send(batch.ids, device_), send(batch.targets, device_),
                 static_cast<double>(batch.predicted));
}

void LmTask::learn_from(nn::Llama teacher, const loss::DistillationOptions& options) {
  teacher_ = std::move(teacher);
  distillation_ = options;
}

trainer::LossSum LmTask::loss_of(const torch::Tensor& ids, const torch::Tensor& targets,
                                 double weight) {
  if (!teacher_ || distillation_.alpha == 0) {
    return {.sum = model_->loss_sum(ids, targets), .weight = weight};
  }
  const loss::DistillationSums sums =
      distillation_sums(*model_, *teacher_, ids, targets, distillation_);
  const double counted = std::max(1.0, weight);
  return {.sum = sums.total,
          .weight = weight,
          .terms = {{&trainer::MetricsRow::soft, sums.soft / counted},
                    {&trainer::MetricsRow::ce, sums.hard / counted}}};
}

std::vector<torch::Tensor> LmTask::largest_sample() {
  const TokenBatch batch = train_.longest();
  return {send(batch.ids, device_), send(batch.targets, device_)};
}

trainer::LossSum LmTask::loss_of(const std::vector<torch::Tensor>& batch) {
  HONE_CHECK(batch.size() == 2, "LmTask", "ids and targets", batch.size());
  return loss_of(batch[0], batch[1], batch[1].ge(0).sum().item<double>());
}

double LmTask::nominal_weight() const {
  const Index most = (samples_ + micro_batches_ - 1) / micro_batches_;
  return static_cast<double>(most * train_.window());
}

bool LmTask::recompute_activations() {
  if (model_->recompute_every() == 1) return false;
  model_->set_recompute_every(1);
  return true;
}

Index LmTask::halve_micro_batches() {
  if (micro_batches_ == samples_) return 0;
  micro_batches_ = std::min(2 * micro_batches_, samples_);
  return micro_batches_;
}

bool LmTask::halve_validation_batches() {
  validation_batch_ /= 2;
  return validation_batch_ > 0;
}

std::vector<std::span<const text::TokenId>> LmTask::held_out_windows(bool all,
                                                                     Index context) const {
  const std::span<const text::TokenId> tokens = held_out_.stream.ids;
  std::vector<std::span<const text::TokenId>> windows;
  Index used = 0;
  const Index length = std::min(context, text::kEvalWindow);
  for (const auto& window : text::cut_windows(held_out_.stream.ends, length, /*lead=*/true)) {
    if (window.length() < 2) continue;
    if (!all && used > 0 && used + window.length() > validation_tokens_) break;
    windows.push_back(tokens.subspan(static_cast<std::size_t>(window.begin),
                                     static_cast<std::size_t>(window.length())));
    used += window.length();
  }
  return windows;
}

double LmTask::agreement(bool all) {
  HONE_CHECK(teacher_, "LmTask", "a teacher", "none");
  Index same = 0, predicted = 0;
  const Index context = std::min(model_->architecture().context, teacher_->architecture().context);
  for_each_window_batch(held_out_windows(all, context), validation_batch_,
                        [&](const torch::Tensor& ids, const torch::Tensor& targets) {
                          same += count_agreements(*model_, *teacher_, send(ids, device_),
                                                   send(targets, device_));
                          predicted += targets.numel();
                        });
  return static_cast<double>(same) / static_cast<double>(predicted);
}

trainer::Validation LmTask::validate(bool all, const trainer::BatchDone& batch_done) {
  const std::vector<std::span<const text::TokenId>> windows =
      held_out_windows(all, model_->architecture().context);
  double nats = 0;
  Index predicted = 0, bytes = 0, done = 0;
  if (batch_done) batch_done(0, std::ssize(windows));
  for_each_window_batch(
      windows, validation_batch_, [&](const torch::Tensor& ids, const torch::Tensor& targets) {
        nats += model_->loss_sum(send(ids, device_), send(targets, device_)).item<double>();
        predicted += targets.numel();
        const auto* target = targets.data_ptr<std::int64_t>();
        for (Index i = 0; i < targets.numel(); ++i) {
          bytes += held_out_.bytes_of_token[static_cast<std::size_t>(target[i])];
        }
        done += targets.size(0);
        if (batch_done) batch_done(done, std::ssize(windows));
      });
  return {
      .loss = nats / static_cast<double>(predicted),
      .bits_per_byte = nats / std::numbers::ln2 / static_cast<double>(std::max<Index>(1, bytes))};
}

std::vector<trainer::CheckpointTensor> LmTask::weights() { return nn::parameters_by_path(*model_); }

}  // namespace hone::task
