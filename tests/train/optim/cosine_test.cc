// SPDX-License-Identifier: Apache-2.0
// TAM's cosine through the optimizer's class, against ATen's.
#include <ATen/ops/cosine_similarity.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "hone/train/optim/tam.h"

namespace hone::optim {
namespace {

// S of a step from this momentum: s itself, with nothing of the s before.
double cosine_of(CorrelationMethod method, const torch::Tensor& momentum,
                 const torch::Tensor& grad) {
  torch::Tensor param = torch::zeros_like(grad).requires_grad_();
  TAM optimizer({param}, TAMOptions(0.1).correlation_method(method).decay_rate(0));
  const std::vector<NamedState> state{{0, "step", torch::tensor(std::int64_t{1})},
                                      {0, "momentum_buffer", momentum},
                                      {0, "correlation", torch::zeros({}, at::kDouble)}};
  optimizer.import_state(state);
  param.mutable_grad() = grad;
  optimizer.step();
  return optimizer.stats().correlation;
}

double norm_of(const torch::Tensor& x) { return x.to(at::kDouble).norm().item<double>(); }

TEST(CosineOfTam, tiny_norms_follow_each_methods_formula_and_atens) {
  torch::manual_seed(3);
  for (const double size : {1.0, 1e-6, 1e-9, 1e-12}) {
    torch::Tensor m = torch::randn({1000}), g = torch::randn({1000}) + 0.5 * m;
    m = m * (size / norm_of(m));
    g = g * (size / norm_of(g));
    const double mg = (m.to(at::kDouble) * g.to(at::kDouble)).sum().item<double>();
    const double a = norm_of(m), b = norm_of(g);
    const double manual = cosine_of(CorrelationMethod::Manual, m, g);
    const double clamped = cosine_of(CorrelationMethod::CosineSimilarity, m, g);
    EXPECT_NEAR(manual / (mg / ((a + 1e-10) * (b + 1e-10))), 1, 1e-6) << size;
    EXPECT_NEAR(clamped / (mg / (std::max(a, 1e-8) * std::max(b, 1e-8))), 1, 1e-6) << size;
    const double aten =
        at::cosine_similarity(m.to(at::kDouble), g.to(at::kDouble), 0, 1e-8).item<double>();
    EXPECT_NEAR(clamped / aten, 1, 1e-5) << size;
    if (size == 1e-12) {
      EXPECT_GT(manual / clamped, 100) << "the guards differ";
    }
  }
}

}  // namespace
}  // namespace hone::optim
