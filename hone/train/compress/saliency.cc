// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/saliency.h"

#include <ATen/ATen.h>

#include <utility>

#include "hone/core/check.h"
#include "hone/core/names.h"

namespace hone::nn {
namespace {

using torch::Tensor;

// Gradients of the model's parameters as they were, put back at the end.
class GradientScope {
 public:
  explicit GradientScope(const torch::nn::Module& model) {
    for (const Tensor& parameter : model.parameters()) {
      before_.emplace_back(parameter, parameter.grad());
    }
    clear();
  }
  ~GradientScope() {
    for (const auto& [parameter, grad] : before_) parameter.mutable_grad() = grad;
  }
  GradientScope(const GradientScope&) = delete;
  GradientScope& operator=(const GradientScope&) = delete;

  void clear() const {
    for (const auto& [parameter, grad] : before_) parameter.mutable_grad() = Tensor();
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> before_;
};

}  // namespace

std::vector<Tensor> gradient_saliencies(std::string_view op, const torch::nn::Module& model,
                                        const std::vector<NamedTensor>& weights,
                                        const std::function<Tensor(Index batch)>& loss,
                                        Index batches) {
  HONE_REQUIRE(loss != nullptr, op, "Gradients need the loss of a batch.");
  HONE_CHECK(batches >= 1, op, "at least one batch", batches);
  std::vector<Tensor> sums(weights.size());
  const GradientScope gradients(model);
  const at::AutoGradMode with_gradients(true);
  for (Index batch = 0; batch < batches; ++batch) {
    gradients.clear();
    loss(batch).backward();
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const Tensor& weight = weights[i].value;
      if (!weight.grad().defined()) continue;
      const Tensor score = (weight.detach().to(at::kDouble) * weight.grad().to(at::kDouble)).abs();
      sums[i] = sums[i].defined() ? sums[i].add_(score) : score;
    }
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    HONE_REQUIRE(sums[i].defined(), op,
                 concat("The loss has no gradient by ", quote_name(weights[i].name), "."));
  }
  return sums;
}

}  // namespace hone::nn
