// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hone/bench/torch/layer_plan.h"
#include "hone/core/file/json_io.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/sketch/factored_linear.h"
#include "hone/train/sketch/fit.h"

namespace hone::bench {

// Bytes that grow with the batch: fixed + row * batch.
struct MemoryLine {
  Index fixed = 0, row = 0;
};

// A layer with its own f32 weights.
struct LayerContestant {
  std::string name = {};
  bool ours = true;
  std::function<torch::Tensor(const torch::Tensor& x)> forward = {};
  std::vector<torch::Tensor> trained = {};      // leaf tensors; empty: inference only
  Json facts = {};                              // fields of its rows that do not depend on the pass
  Index forward_flops = 0, backward_flops = 0;  // per row, or per image
  Index weight_bytes = 0;                       // measured allocation
  // The predicted peak of a pass, without the weights: the largest of these.
  std::vector<MemoryLine> forward_peak = {}, train_peak = {};
};

// Bytes of one pass, as a MemoryMeter counts them. Activations are the input, the values for the
// backward pass and the output. Gradients are those at the end of the pass. The peak includes the
// weights.
struct LayerMemory {
  Index activations = 0, gradients = 0, peak = 0;
};
LayerMemory read_memory(const LayerContestant& layer, const LayerShape& shape, Index batch,
                        bool train);
Index predicted_peak(const LayerContestant& layer, Index batch, bool train);

// Seeded inputs: [batch, inputs], or images.
torch::Tensor layer_input(const LayerShape& shape, Index batch, std::uint64_t seed);
// Runs one pass: forward without gradients, or forward and backward with the gradients of the input
// and all trained tensors.
void run_forward(const LayerContestant& layer, const torch::Tensor& x);
std::vector<torch::Tensor> run_train(const LayerContestant& layer, const torch::Tensor& x,
                                     const torch::Tensor& gradient);

// A sketched layer as its publication computes it (arXiv 2601.15473):
//   y = 1/(2 terms) Σ_t ((x s1_t) u1_t + (x u2_t) s2_t) + bias
// with each kind of product batched over the terms by LibTorch.
struct BatchedLayer {
  torch::Tensor s1, u1, u2, s2, bias;  // [terms, in, k], [terms, k, out], [terms, in, k], …

  // A copy of the layer's trained weights and signs.
  static BatchedLayer of(const nn::FactoredLinearImpl& layer);
  torch::Tensor forward(const torch::Tensor& x) const;
  torch::Tensor effective_weight() const;  // [out, in]
};

// Makes contestants that approximate one dense layer, whose seeded weight is normal(0, 1/√inputs).
// Errors are relative to it: |W' - W| / |W|.
class LayerMaker {
 public:
  LayerMaker(const LayerShape& shape, const LayerPlan& plan, Index most_rank, std::uint64_t seed);

  // "dense" is at::linear or at::conv2d, "dense_hone" is the product that hone's networks use.
  LayerContestant dense(const std::string& name);
  LayerContestant bmm(const LayerRank& rank);
  // "sketched", "lowrank" or "frozen_<type>".
  LayerContestant factored(const std::string& mode, const LayerRank& rank);

 private:
  nn::FactoredLinear sketched_linear(const LayerRank& rank, const std::string& fit) const;
  nn::FactoredLinear low_rank_linear(const LayerRank& rank);
  LayerContestant linear(const std::string& mode, const LayerRank& rank);
  LayerContestant frozen(const std::string& mode, const LayerRank& rank);
  LayerContestant conv(const std::string& mode, const LayerRank& rank);
  const sketch::FactorPair& svd();
  // Whether svd() is exact. The randomized SVD has an error of up to 1.05 times the optimum.
  bool is_svd_exact() const;
  std::string svd_fit() const { return is_svd_exact() ? "svd" : "randomized_svd"; }
  double error_of(const torch::Tensor& weight) const;
  std::string sketched_fit() const;
  // Errors of the other fits of a sketched layer that the options ask for.
  Json sketched_errors(const LayerRank& rank) const;

  LayerShape shape_;
  std::vector<std::string> fits_;
  Index most_rank_ = 0;
  nn::MatmulBackend matmul_;
  std::uint64_t seed_ = 0;
  memory::MemoryMeter meter_;
  torch::Tensor weight_, bias_;                // [out, in], or [out, in, kernel, kernel]
  std::optional<sketch::FactorPair> svd_;      // factors of the largest rank
  nn::FactoredLinear last_sketched_{nullptr};  // bmm() copies it, as fits take long
};

}  // namespace hone::bench
