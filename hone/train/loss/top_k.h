// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <filesystem>

#include "hone/train/loss/distillation.h"

// Outputs of a teacher that are computed once, kept in a file, and learned from many times.
namespace hone::loss {

// The most probable classes of rows of a teacher at a temperature, the most probable one first.
struct TopK {
  torch::Tensor classes;    // int32 [rows, k]
  torch::Tensor log_probs;  // f32 [rows, k], of softmax(logits / temperature)
  double temperature = 1;
  Index of = 0;  // classes that the teacher has, above k

  TopK rows(Index first, Index count) const;
};
// Throws Error{InvalidArgument} unless logits are [rows, classes] and 1 ≤ k < classes.
TopK top_k_of(const torch::Tensor& logits, Index k, double temperature);

// distillation_sums() against the top k classes and one bucket for the rest, which is a lower bound
// of the soft loss and equals it for k = classes − 1. The temperature is that of the teacher; that
// of the options is not used.
DistillationSums top_k_distillation_sums(const torch::Tensor& student, const TopK& teacher,
                                         const torch::Tensor& targets,
                                         const DistillationOptions& options = {});

// A safetensors file with the tensors "classes" and "log_probs". Reading throws Error{NotFound},
// and Error{CorruptFile} for a file that is not one: another type or size, classes out of range or
// twice in a row, numbers that are not finite, or probabilities whose sum is above 1.
void write_top_k(const std::filesystem::path& path, const TopK& top);
TopK read_top_k(const std::filesystem::path& path);

}  // namespace hone::loss
