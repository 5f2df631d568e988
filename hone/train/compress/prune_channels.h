// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/train/compress/prune.h"
#include "hone/train/nn/resnet.h"

namespace hone::nn {

struct ChannelOptions {
  PruneScore score = PruneScore::Magnitude;
  double ratio = 0.25;  // the fraction of the channels between two convolutions that is removed
  bool global = false;  // of all of them together: their scores are divided by the layer's mean
  Index round_to = 1;   // the channels that remain are a multiple, where that many exist
  std::function<torch::Tensor(Index batch)> loss = {};  // as in PruneOptions
  Index batches = 16;
};

// Channels between two convolutions of a block, which are one group with their partners: the
// outputs of the first convolution, their normalization, and the inputs of the second convolution.
struct RemovedChannels {
  std::string conv;  // "layer1.0.conv1"
  Index before = 0;
  std::vector<Index> kept;
};

struct PrunedResNet {
  ResNet net{nullptr};
  std::vector<RemovedChannels> layers;
  Index parameters_before = 0, parameters_after = 0;
};

// A smaller ResNet without the channels that matter least: those whose group has the least Σ w²,
// or Σ |w · g| with Gradient. The model is not changed; the new one, in the same mode and on the
// same device, has copies of what remains. Its outputs are those of the model with the removed
// channels set to 0. The widths of the residual stream stay.
//
// Throws Error{InvalidArgument} for a ratio out of [0, 1), and like prune(); Error{Unsupported} if
// a layer was replaced.
PrunedResNet prune_channels(ResNet& model, const ChannelOptions& options);

}  // namespace hone::nn
