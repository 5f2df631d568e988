// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"

// Sets weights of a model to 0 and keeps them there.
namespace hone::nn {

// What tells which weights of a model matter least: their size |w|, or their effect on the loss to
// the first order, Σ |w · g| over the gradients g of several batches (Molchanov et al., "Importance
// estimation for neural network pruning", 2019).
enum class PruneScore { Magnitude, Gradient };

struct PruneOptions {
  PruneScore score = PruneScore::Magnitude;
  double sparsity = 0.5;  // the fraction of the weights that are 0 afterwards, in [0, 1]
  bool global = false;    // of the weights of all layers together, instead of those of each layer
  // Patterns of LayerSelector for layers that stay as they are.
  std::vector<std::string> except = {};
  // Gradient: the loss of a batch, with its graph. Called for batches 0, 1, … in the model's mode.
  std::function<torch::Tensor(Index batch)> loss = {};
  Index batches = 16;
};

// The weights that are 0 and shall stay 0. torch::save() and torch::load() take it: its buffers are
// the masks, 1 where a weight is kept.
class WeightMasksImpl final : public torch::nn::Module {
 public:
  // Sets the weights to 0 again. Call it after each step of an optimizer, whose momentum and decay
  // would move them.
  void apply();

  struct Entry {
    std::string name;  // "layer1.0.conv1.weight"
    torch::Tensor weight, mask;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  Index zeros() const;  // weights that are kept at 0
  void add(std::string name, const torch::Tensor& weight, const torch::Tensor& mask);

 private:
  std::vector<Entry> entries_;
};
TORCH_MODULE(WeightMasks);

struct PrunedTensor {
  std::string name;
  Index weights = 0, zeros = 0;

  double sparsity() const { return static_cast<double>(zeros) / static_cast<double>(weights); }
};

struct PruneResult {
  WeightMasks masks;
  std::vector<PrunedTensor> tensors;  // of the prunable set, after pruning
  Index weights = 0, zeros = 0;       // of all of them

  double sparsity() const {
    return weights == 0 ? 0 : static_cast<double>(zeros) / static_cast<double>(weights);
  }
};
Json to_json(const PruneResult& result);

// Sets exactly round(sparsity · n) of the n weights of each layer, or of all, to 0: those of least
// score; among equal ones, those that come first. Weights that are 0 already have the score 0, so
// that a higher sparsity keeps them. The prunable set are the weights of linear layers,
// convolutions, LSTMs and GRUs, without biases, embeddings and normalizations. A tensor that is in
// several places counts once.
//
// Throws, and changes nothing. Error{InvalidArgument}: a sparsity out of range, no weights, scores
// that are not finite, or with Gradient no loss or a weight without a gradient, which it names.
PruneResult prune(torch::nn::Module& model, const PruneOptions& options);

// The masks of the weights that are 0 now, such as those of a model that was pruned and saved.
WeightMasks masks_of_zeros(torch::nn::Module& model, const std::vector<std::string>& except = {});

// A sparsity that grows from `first` to `last` between two steps, s = last + (first − last)
// (1 − t)³, with t from 0 to 1 (Zhu and Gupta, "To prune, or not to prune", 2017).
struct PruneSchedule {
  double first = 0, last = 0.5;
  Index begin = 0, end = 1000;  // steps
  Index every = 100;            // steps between two prunings

  double sparsity_at(Index step) const;
  // Whether to prune after this step: at `begin`, each `every` steps, and at `end`.
  bool is_due(Index step) const;
};

}  // namespace hone::nn
