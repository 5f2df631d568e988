// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "hone/core/file/json_io.h"
#include "hone/model_io/model_file.h"
#include "hone/text/tokenizer.h"
#include "hone/train/loss/distillation.h"
#include "hone/train/nn/llama.h"
#include "hone/train/task/lm/initial_model.h"
#include "hone/train/task/lm/lm_config.h"

namespace hone::task {

// A language model that another one learns from. Its parameters take no gradient.
struct LmTeacher {
  nn::Llama model{nullptr};
  std::shared_ptr<const text::Tokenizer> tokenizer;
  Json generation_defaults = Json::object();
  model_io::ModelMetadata metadata;
  std::filesystem::path path;
  std::vector<std::filesystem::path> files;  // with the weights
  Index parameters = 0;
};

// The teacher of distill.teacher, on trainer.device; nothing if the key is empty. It may be
// whatever model.init may be, quantized models included. Throws as open_initial_model() does, and
// Error{InvalidArgument} if windows are longer than its context, or if the initial model, which may
// be null, has other tokens.
std::optional<LmTeacher> open_teacher(const LmConfig& config, const InitialModel* initial);

// The sums of loss::distillation_sums() over the targets of windows, ids and targets [windows,
// positions] int64, as f64. Computes the logits of nn::logits_rows() positions at a time, again in
// the backward pass.
loss::DistillationSums distillation_sums(const nn::LlamaImpl& student, const nn::LlamaImpl& teacher,
                                         const torch::Tensor& ids, const torch::Tensor& targets,
                                         const loss::DistillationOptions& options);

// How many positions with a target ≥ 0 have the same most probable token in both models.
Index count_agreements(const nn::LlamaImpl& one, const nn::LlamaImpl& other,
                       const torch::Tensor& ids, const torch::Tensor& targets);

}  // namespace hone::task
