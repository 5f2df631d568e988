// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "hone/core/thread/executor.h"
#include "hone/infer/engine_options.h"
#include "hone/infer/input_listener.h"
#include "hone/infer/request.h"
#include "hone/model_io/model_file.h"

namespace hone::infer {

// Runs texts through a model layer by layer: all of them through one layer before the next, so that
// a layer can be changed before later ones see what it computes. Keeps the residual stream of all
// tokens in f32 and the weights of one layer. Every text is a sequence of its own.
class LayerWalk {
 public:
  // `model` and `executor` must outlive the walk. Throws Error{InvalidArgument} for no texts, and
  // for texts that are empty, longer than the context or with ids outside the vocabulary.
  LayerWalk(const model_io::ModelFile& model, std::vector<std::vector<TokenId>> texts,
            Activations activations, Executor& executor);
  ~LayerWalk();

  Index tokens() const;
  // Starts with the embedding again.
  void restart();
  // Passes the inputs of the products of layer `layer` to `listener`. The residual stream does not
  // change, so that advance() can follow with other weights.
  void observe(Index layer, const model_io::ModelFile& weights, const InputListener& listener);
  // Applies the layer with these weights to the residual stream.
  void advance(Index layer, const model_io::ModelFile& weights);

  // The residual stream [tokens, hidden_size], to return to a layer later.
  std::span<const float> hidden() const;
  void set_hidden(std::span<const float> hidden);
  // After the last layer: the logits [count, vocab] of rows first, first + 1, … of all tokens.
  // Valid until the next call; `count` is at most logit_rows().
  std::span<float> logits(Index first, Index count);
  Index logit_rows() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hone::infer
