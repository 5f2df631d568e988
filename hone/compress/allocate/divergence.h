// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/compress/model.h"
#include "hone/core/thread/executor.h"
#include "hone/infer/capture.h"

namespace hone::compress {

using Texts = std::vector<std::vector<text::TokenId>>;

// The beginnings of texts that are spread over `all`, about `tokens` together; fewer where the
// model's logits of so many tokens would take more than half a gigabyte.
Texts sample_texts(const Texts& all, const Model& model, Index tokens);

// Measures the KL divergence of changed models from the original on the same tokens, as the mean in
// nats per token.
class DivergenceMeter {
 public:
  DivergenceMeter(const Model& original, Texts texts, Executor& executor);

  infer::LayerWalk& walk() { return walk_; }
  // Call it before layer 0, 1, … of the original is applied.
  void keep_stream() { streams_.emplace_back(walk_.hidden().begin(), walk_.hidden().end()); }
  // Call it after the last layer.
  void keep_logits();

  // With `changed` in place of the original in one layer.
  double of_layer(Index layer, const Model& changed);
  // With other weights outside of the layers.
  double of_model(const Model& changed);
  // As the walk stands behind the last layer.
  double compare() { return compare(walk_); }

 private:
  Index layers() const { return original_.architecture().layers; }
  Index vocab() const { return original_.architecture().vocab_size; }
  double compare(infer::LayerWalk& walk) const;

  const Model& original_;
  Texts texts_;
  Executor& executor_;
  infer::LayerWalk walk_;
  std::vector<std::vector<float>> streams_;
  std::vector<float> reference_;
};

}  // namespace hone::compress
