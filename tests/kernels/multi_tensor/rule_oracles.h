// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/rule/adagrad.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/kernels/multi_tensor/rule/rmsprop.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"

// Step t (from 1) of every rule as its paper or PyTorch's documentation writes it, element by
// element in double; independent of the stages that the kernels are composed of.
namespace hone::kernels::test {

using DoubleOperands = BasicChunkOperands<double>;

inline double signed_grad(const DoubleOperands& c, Index i, bool maximize) {
  return maximize ? -c.grad[i] : c.grad[i];
}

inline void oracle_step(const SGDGroup& o, Index t, const DoubleOperands& c) {
  for (Index i = 0; i < c.length; ++i) {
    double g = signed_grad(c, i, o.maximize) + o.weight_decay * c.param[i];
    if (o.momentum > 0) {
      double& m = c.momentum[i];
      m = t == 1 ? g : o.momentum * m + (1 - o.dampening) * g;
      g = o.nesterov ? g + o.momentum * m : m;
    }
    c.param[i] -= o.lr * g;
  }
}

inline void oracle_step(const AdamGroup& o, Index t, const DoubleOperands& c) {
  const auto steps = static_cast<double>(t);
  for (Index i = 0; i < c.length; ++i) {
    double g = signed_grad(c, i, o.maximize);
    if (o.decoupled) {
      c.param[i] *= 1 - o.lr * o.weight_decay;
    } else {
      g += o.weight_decay * c.param[i];
    }
    double& m = c.momentum[i];
    double& v = c.second_moment[i];
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    if (o.amsgrad) c.extra[i] = std::max(c.extra[i], v);
    const double mean = m / (1 - std::pow(o.beta1, steps));
    const double square = (o.amsgrad ? c.extra[i] : v) / (1 - std::pow(o.beta2, steps));
    c.param[i] -= o.lr * mean / (std::sqrt(square) + o.eps);
  }
}

inline void oracle_step(const LionGroup& o, Index /*t*/, const DoubleOperands& c) {
  for (Index i = 0; i < c.length; ++i) {
    const double g = signed_grad(c, i, o.maximize);
    const double mixed = o.beta1 * c.momentum[i] + (1 - o.beta1) * g;
    const double direction = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;
    c.param[i] = (1 - o.lr * o.weight_decay) * c.param[i] - o.lr * direction;
    c.momentum[i] = o.beta2 * c.momentum[i] + (1 - o.beta2) * g;
  }
}

inline void oracle_step(const AdagradGroup& o, Index t, const DoubleOperands& c) {
  const double lr = o.lr / (1 + static_cast<double>(t - 1) * o.lr_decay);
  for (Index i = 0; i < c.length; ++i) {
    const double g = signed_grad(c, i, o.maximize) + o.weight_decay * c.param[i];
    c.second_moment[i] += g * g;
    c.param[i] -= lr * g / (std::sqrt(c.second_moment[i]) + o.eps);
  }
}

inline void oracle_step(const RMSpropGroup& o, Index /*t*/, const DoubleOperands& c) {
  for (Index i = 0; i < c.length; ++i) {
    const double g = signed_grad(c, i, o.maximize) + o.weight_decay * c.param[i];
    double& v = c.second_moment[i];
    v = o.alpha * v + (1 - o.alpha) * g * g;
    double variance = v;
    if (o.centered) {
      double& mean = c.extra[i];
      mean = o.alpha * mean + (1 - o.alpha) * g;
      variance = std::max(0.0, v - mean * mean);
    }
    double update = g / (std::sqrt(variance) + o.eps);
    if (o.momentum > 0) update = c.momentum[i] = o.momentum * c.momentum[i] + update;
    c.param[i] -= o.lr * update;
  }
}

// `s` is the correlation after this step; AdaTAM where the operands have a second moment.
inline void oracle_step(const TAMGroup& o, double s, Index t, const DoubleOperands& c) {
  const auto steps = static_cast<double>(t);
  const double damping = o.eps + o.fixed_damping.value_or((1 + s) / 2);
  const double share = o.average_momentum ? 1 - o.momentum : 1;
  for (Index i = 0; i < c.length; ++i) {
    double g = signed_grad(c, i, o.maximize);
    double& p = c.param[i];
    if (!o.decoupled) g += o.weight_decay * p;
    double& m = c.momentum[i];
    m = o.momentum * m + share * damping * g;
    double update = m;
    if (c.second_moment != nullptr) {
      double& v = c.second_moment[i];
      v = o.beta2 * v + (1 - o.beta2) * g * g;
      double square = v;
      if (o.bias_correction) {
        update = m / (1 - std::pow(o.momentum, steps));
        square = v / (1 - std::pow(o.beta2, steps));
      }
      update /= std::sqrt(square) + o.eps;
    }
    if (o.decoupled) p *= 1 - o.lr * o.weight_decay;
    p -= o.lr * update;
  }
}

}  // namespace hone::kernels::test
