// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/vision_task.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "hone/core/check.h"
#include "hone/train/surgery/slot.h"

namespace hone::task {
namespace {

torch::Tensor loss_sum(const torch::Tensor& logits, const torch::Tensor& labels) {
  return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum);
}

}  // namespace

VisionTask::VisionTask(nn::VisionNet model, std::unique_ptr<Objective> objective,
                       std::shared_ptr<const VisionData> data, const VisionTaskOptions& options)
    : model_(std::move(model)),
      objective_(std::move(objective)),
      data_(std::move(data)),
      place_{.device = model_->parameters().front().device(),
             .channels_last = options.channels_last},
      train_(data_->corpus.train, data_->corpus.shape, data_->stats, options.seed,
             options.augmentation, objective_->views()),
      held_out_(data_->corpus.held_out, data_->corpus.shape, data_->stats, options.seed,
                {.side = options.augmentation.side}),
      samples_(options.micro_batch * options.accumulation_steps),
      micro_batches_(options.accumulation_steps),
      validation_images_(options.validation_images),
      validation_batch_(options.micro_batch),
      workers_(options.workers),
      prefetch_(options.prefetch),
      prefetcher_(std::make_unique<Prefetcher>(train_, workers_, prefetch_)) {
  if (options.guard) guard_.emplace(*options.guard);
}

std::optional<CollapseVerdict> VisionTask::verdict() {
  if (!guard_) return std::nullopt;
  guard_->finish();
  return guard_->verdict();
}

void VisionTask::restore_buffers() {
  for (const auto& [tensor, copy, rows] : before_step_) {
    rows.defined() ? tensor.index_copy_(0, rows, copy) : tensor.copy_(copy);
  }
}

torch::Tensor VisionTask::classes_of(Index step) const {
  std::vector<std::int64_t> labels;
  for (Index i = 0; i < samples_; ++i) {
    labels.push_back(data_->corpus.train.label(train_.index_of(step * samples_ + i)));
  }
  return std::get<0>(at::_unique(at::tensor(labels, at::kLong))).to(place_.device);
}

// A step that is run again with less memory starts from the same buffers.
void VisionTask::begin_step(Index step) {
  if (step_ == step) return restore_buffers();
  step_.reset();  // until all copies are made, for which there may be no memory
  before_step_.clear();
  const std::vector<torch::Tensor> by_class = objective_->class_buffers();
  const torch::Tensor rows = by_class.empty() ? torch::Tensor() : classes_of(step);
  for (const torch::Tensor& buffer : objective_->module().buffers()) {
    const bool has_rows = std::ranges::any_of(
        by_class, [&](const torch::Tensor& own) { return own.is_same(buffer); });
    before_step_.push_back(has_rows ? Buffer{buffer, buffer.index_select(0, rows), rows}
                                    : Buffer{buffer, buffer.clone()});
  }
  const auto watched = guard_ ? guard_->state() : std::vector<trainer::CheckpointTensor>();
  for (const auto& [name, value] : watched) before_step_.push_back({value, value.clone()});
  step_ = step;
}

trainer::LossSum VisionTask::micro_batch(Index step, Index micro) {
  if (micro == 0) begin_step(step);
  const Index first = samples_ * micro / micro_batches_,
              end = samples_ * (micro + 1) / micro_batches_;
  const Index sample = step * samples_ + first;
  ImageValues values = prefetcher_->take(sample, end - first);
  const auto batch = to_tensors(values, train_.shape(), place_);
  paco::ShownImages shown{.images = {}, .geometry = std::move(values.geometry)};
  for (Index i = first; i < end; ++i) shown.images.push_back(train_.index_of(step * samples_ + i));
  return loss_of(ViewBatch{.views = batch[0].split(end - first),
                           .targets = batch[1],
                           .epoch = sample / train_.images_per_epoch(),
                           .shown = std::move(shown)});
}

trainer::LossSum VisionTask::loss_of(const ViewBatch& batch) {
  const ObjectiveLoss loss = objective_->loss(batch);
  if (guard_) {
    guard_->observe({.epoch = batch.epoch,
                     .logits = loss.logits,
                     .targets = batch.targets,
                     .features = loss.features,
                     .active_share = loss.active_share});
  }
  const auto images = static_cast<double>(batch.targets.size(0));
  return {.sum = loss.mean * images, .weight = images, .terms = loss.terms};
}

trainer::LossSum VisionTask::loss_of(const std::vector<torch::Tensor>& batch) {
  const auto views = static_cast<std::size_t>(objective_->views());
  HONE_CHECK(batch.size() == views + 1, "VisionTask", concat(views, " views and labels"),
             batch.size());
  return loss_of(ViewBatch{.views = {batch.begin(), batch.end() - 1}, .targets = batch.back()});
}

std::vector<torch::Tensor> VisionTask::largest_sample() {
  const auto sample = to_tensors(train_.make(0, 1), train_.shape(), place_);
  std::vector<torch::Tensor> out = sample[0].split(1);
  out.push_back(sample[1]);
  return out;
}

double VisionTask::nominal_weight() const {
  return static_cast<double>((samples_ + micro_batches_ - 1) / micro_batches_);
}

Index VisionTask::halve_micro_batches() {
  if (model_->mixes_batch() || micro_batches_ == samples_) return 0;
  micro_batches_ = std::min(2 * micro_batches_, samples_);
  return micro_batches_;
}

bool VisionTask::halve_validation_batches() {
  validation_batch_ /= 2;
  return validation_batch_ > 0;
}

trainer::Validation VisionTask::validate(bool all, const trainer::BatchDone& batch_done) {
  const Index size = held_out_.images_per_epoch();
  const Index count = all ? size : std::min(size, validation_images_);
  double nats = 0;
  Index right = 0;
  if (batch_done) batch_done(0, count);
  score_images(model_, held_out_,
               {.count = count,
                .batch = validation_batch_,
                .workers = workers_,
                .prefetch = prefetch_,
                .place = place_},
               [&](const ScoredBatch& batch) {
                 nats += loss_sum(batch.logits, batch.labels).item<double>();
                 right += batch.logits.argmax(1).eq(batch.labels).sum().item<std::int64_t>();
                 if (batch_done) batch_done(batch.first + batch.labels.numel(), count);
               });
  trainer::Validation out;
  out.loss = nats / static_cast<double>(count);
  out.accuracy = static_cast<double>(right) / static_cast<double>(count);
  return out;
}

double VisionTask::agreement(const VisionTeacher& teacher) {
  const Index images = held_out_.images_per_epoch();
  Index same = 0;
  score_images(model_, held_out_,
               {.count = images,
                .batch = validation_batch_,
                .workers = workers_,
                .prefetch = prefetch_,
                .place = place_},
               [&](const ScoredBatch& batch) {
                 const torch::Tensor taught = teacher.logits(batch.images).argmax(1);
                 same += batch.logits.argmax(1).eq(taught).sum().item<Index>();
               });
  return static_cast<double>(same) / static_cast<double>(images);
}

std::vector<trainer::CheckpointTensor> VisionTask::weights() {
  const torch::nn::Module& module = objective_->module();
  std::vector<trainer::CheckpointTensor> out = nn::parameters_by_path(module);
  std::ranges::copy(nn::buffers_by_path(module), std::back_inserter(out));
  if (guard_) std::ranges::copy(guard_->state(), std::back_inserter(out));
  return out;
}

}  // namespace hone::task
