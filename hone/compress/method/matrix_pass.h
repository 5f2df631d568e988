// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hone/compress/method/gptq.h"
#include "hone/compress/method/layer_pass.h"

namespace hone::compress {

// The inputs of one product of a layer, for the matrices that share them; null if the pass does not
// need them.
struct MatrixInputs {
  const kernels::Gram* gram = nullptr;
  const ErrorFeedback* feedback = nullptr;
};

// A LayerPass that changes one matrix at a time: those of layers with the inputs that they share,
// then the embedding, the head and the like without.
class MatrixPass : public LayerPass {
 public:
  double multiplications(const model_io::LayerProduct& product) const final;

 protected:
  // `feedback`: how the error feedback is made that change_matrix() needs, if it does.
  template <class Options>
  MatrixPass(std::string family, std::string name, const Options& options, const Recipe& recipe,
             std::optional<FeedbackOptions> feedback)
      : LayerPass(std::move(family), std::move(name), options, recipe), feedback_(feedback) {}

  // Why the pass leaves tensor `at` of model.tensors() as it is now.
  virtual ReasonToKeep reason_to_keep(const Model& model, Index at) const = 0;
  // Changes a tensor that has no reason to be kept.
  virtual void change_matrix(Model& model, Index at, const MatrixInputs& inputs, Context& context,
                             PassRecord& record) const = 0;

  bool would_change(const Model& model, Index at) const;
  std::vector<Index> products_to_observe(const Model& model, Index layer) const final;
  void change_layer(Model& model, Index layer, LayerInputs& inputs, Context& context,
                    PassRecord& record) const final;
  void change_rest(Model& model, Context& context, PassRecord& record) const final;

 private:
  void change_or_keep(Model& model, Index at, const MatrixInputs& inputs, Context& context,
                      PassRecord& record) const;

  std::optional<FeedbackOptions> feedback_;
};

}  // namespace hone::compress
