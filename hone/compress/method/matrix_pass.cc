// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/matrix_pass.h"

namespace hone::compress {

// The Cholesky factor of the moments, and the feedback of each output.
double MatrixPass::multiplications(const model_io::LayerProduct& product) const {
  const auto k = static_cast<double>(product.inputs), n = static_cast<double>(product.outputs);
  return feedback_ ? k * k * (0.5 * n + 0.5 * k) : 0;
}

bool MatrixPass::would_change(const Model& model, Index at) const {
  const ReasonToKeep reason = reason_to_keep(model, at);
  return reason && reason->empty();
}

std::vector<Index> MatrixPass::products_to_observe(const Model& model, Index layer) const {
  return products_with(model, layer, [&](Index at) { return would_change(model, at); });
}

void MatrixPass::change_or_keep(Model& model, Index at, const MatrixInputs& inputs,
                                Context& context, PassRecord& record) const {
  throw_if_cancelled(context);
  const ReasonToKeep reason = reason_to_keep(model, at);
  if (!reason) return;
  if (reason->empty()) return change_matrix(model, at, inputs, context, record);
  record.kept.push_back(kept_row(model.tensors()[static_cast<std::size_t>(at)], *reason));
}

void MatrixPass::change_layer(Model& model, Index layer, LayerInputs& inputs, Context& context,
                              PassRecord& record) const {
  const auto products = model_io::layer_products(model.architecture(), layer);
  for (std::size_t p = 0; p < products.size(); ++p) {
    const auto change = [&](const kernels::Gram* gram, std::span<const Index> matrices) {
      std::optional<ErrorFeedback> feedback;
      if (gram != nullptr && feedback_)
        feedback.emplace(*gram, *feedback_, model_io::layer_name(layer, products[p].name),
                         context.executor);
      const MatrixInputs own{.gram = gram, .feedback = feedback ? &*feedback : nullptr};
      for (const Index at : matrices) change_or_keep(model, at, own, context, record);
    };
    for_matrices(model, layer, products[p], inputs[p] ? &*inputs[p] : nullptr, context.executor,
                 change);
    inputs[p].reset();
  }
}

void MatrixPass::change_rest(Model& model, Context& context, PassRecord& record) const {
  for (Index at = 0; at < std::ssize(model.tensors()); ++at) {
    if (role_of(model.tensors()[static_cast<std::size_t>(at)]) != Role::Linear)
      change_or_keep(model, at, {}, context, record);
  }
}

}  // namespace hone::compress
