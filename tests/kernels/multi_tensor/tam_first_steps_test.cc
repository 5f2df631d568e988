// SPDX-License-Identifier: Apache-2.0
// The first steps of TAM, AdaTAM and AdaTAMW: the closed form of a constant gradient in every form
// that the options offer, and the recurrence in double on a quadratic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/multi_tensor/tam_scope_step.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using hone::test::TensorSet;

// m_t / g = Σ_k β^(t-k) (ε + 1 - γ^(k-1) / 2), since s_k = 1 - γ^(k-1).
double closed_momentum(const TAMGroup& group, Index steps) {
  const auto t = static_cast<double>(steps);
  const double beta = group.momentum, gamma = group.decay_rate;
  const double full = (1 + group.eps) * (1 - std::pow(beta, t)) / (1 - beta);
  const double damped = beta == gamma ? t * std::pow(beta, t - 1)
                                      : (std::pow(beta, t) - std::pow(gamma, t)) / (beta - gamma);
  return (group.average_momentum ? 1 - beta : 1) * (full - damped / 2);
}

// θ_{t-1} - θ_t over η for the gradient g > 0.
double closed_step(const TAMGroup& group, bool adaptive, double g, Index steps) {
  const auto t = static_cast<double>(steps);
  const double m = g * closed_momentum(group, steps);
  if (!adaptive) return m;
  const double square = g * g * (1 - std::pow(group.beta2, t));
  if (!group.bias_correction) return m / (std::sqrt(square) + group.eps);
  return m / (1 - std::pow(group.momentum, t)) / (g + group.eps);
}

struct Decays {
  double beta, gamma, beta2;
};

TEST(TamFirstSteps, of_a_constant_gradient_have_the_closed_form_of_every_variant) {
  constexpr float kGradient = 0.5f;
  for (const Decays decays :
       {Decays{0.9, 0.9, 0.999}, Decays{0.9, 0.9, 0.95}, Decays{0.9, 0.5, 0.99},
        Decays{0.5, 0.95, 0.999}, Decays{0, 0.9, 0.9}, Decays{0.8, 0, 0.9}}) {
    for (const int form : {0, 1, 2, 3, 4}) {  // TAM; AdaTAM: sum, average, each with corrections
      const bool adaptive = form > 0;
      const TAMGroup group{.lr = 1,
                           .momentum = decays.beta,
                           .decay_rate = decays.gamma,
                           .beta2 = decays.beta2,
                           .average_momentum = form == 2 || form == 4,
                           .bias_correction = form >= 3};
      TensorSet set({40}, {.second_moment = adaptive});
      std::ranges::fill(set.grad(0), kGradient);
      double s = 0;
      for (Index t = 1; t <= 40; ++t) {
        std::ranges::fill(set.param[0], 0.0f);
        tam_step(set.plan(), {&group, 1}, TAMScope::Tensor, {&s, 1}, {}, serial_executor());
        const double want = closed_step(group, adaptive, kGradient, t);
        ASSERT_NEAR(-set.param[0][7] / want, 1, 1e-5) << "form " << form << " step " << t;
      }
    }
  }
}

// f(θ) = Σ a_i θ_i² / 2 with curvatures from 0.05 to 1.
class Quadratic {
 public:
  explicit Quadratic(Index n) {
    for (Index i = 0; i < n; ++i) {
      curvature_.push_back(0.05 + 0.95 * static_cast<double>(i) / static_cast<double>(n - 1));
    }
  }
  template <class Theta, class Grad>
  void gradient(const Theta& theta, Grad&& grad) const {
    for (std::size_t i = 0; i < curvature_.size(); ++i) {
      grad[i] = static_cast<std::remove_cvref_t<decltype(grad[i])>>(curvature_[i] * theta[i]);
    }
  }

 private:
  std::vector<double> curvature_;
};

// The method as its paper writes it (arXiv 2412.18790), on one tensor.
class PublishedTam {
 public:
  PublishedTam(const TAMGroup& group, bool adaptive, std::vector<double> theta)
      : group_(group),
        adaptive_(adaptive),
        theta_(std::move(theta)),
        momentum_(theta_.size()),
        square_(theta_.size()) {}

  void step(std::vector<double> grad) {
    for (std::size_t i = 0; i < grad.size() && !group_.decoupled; ++i) {
      grad[i] += group_.weight_decay * theta_[i];
    }
    const double norms = std::sqrt(dot(momentum_, momentum_) * dot(grad, grad));
    const double cosine = norms == 0 ? 0 : dot(momentum_, grad) / norms;
    s_ = group_.decay_rate * s_ + (1 - group_.decay_rate) * cosine;
    for (std::size_t i = 0; i < grad.size(); ++i) {
      momentum_[i] = group_.momentum * momentum_[i] + (group_.eps + (1 + s_) / 2) * grad[i];
      square_[i] = group_.beta2 * square_[i] + (1 - group_.beta2) * grad[i] * grad[i];
      if (group_.decoupled) theta_[i] *= 1 - group_.lr * group_.weight_decay;
      theta_[i] -= group_.lr * momentum_[i] / (adaptive_ ? std::sqrt(square_[i]) + group_.eps : 1);
    }
  }
  const std::vector<double>& theta() const { return theta_; }
  double s() const { return s_; }

 private:
  static double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }

  TAMGroup group_;
  bool adaptive_;
  std::vector<double> theta_, momentum_, square_;
  double s_ = 0;
};

void expect_published_steps(const TAMGroup& group, bool adaptive) {
  constexpr Index kSize = 50, kSteps = 60;
  const Quadratic quadratic(kSize);
  TensorSet set({kSize}, {.second_moment = adaptive});
  PublishedTam published(group, adaptive, {set.param[0].begin(), set.param[0].end()});
  std::vector<double> grad(kSize);
  double s = 0;
  for (Index t = 0; t < kSteps; ++t) {
    quadratic.gradient(set.param[0], set.grad(0));
    tam_step(set.plan(), {&group, 1}, TAMScope::Tensor, {&s, 1}, {}, serial_executor());
    quadratic.gradient(published.theta(), grad);
    published.step(grad);
    ASSERT_NEAR(s, published.s(), 1e-5) << t;
    for (std::size_t i = 0; i < kSize; ++i) {
      ASSERT_NEAR(set.param[0][i], published.theta()[i], 1e-5) << "element " << i << " step " << t;
    }
  }
}

TEST(TamFirstSteps, on_a_quadratic_are_those_of_the_published_method) {
  expect_published_steps({.lr = 0.1}, false);
  expect_published_steps({.lr = 0.05, .weight_decay = 0.1}, false);
  expect_published_steps({.lr = 1e-3}, true);
  expect_published_steps({.lr = 3e-4, .beta2 = 0.95, .weight_decay = 0.1}, true);
  expect_published_steps({.lr = 1e-3, .weight_decay = 0.1, .decoupled = true}, true);
}

}  // namespace
}  // namespace hone::kernels
