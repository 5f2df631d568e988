// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "hone/kernels/cuda/host_device.h"
#include "hone/kernels/multi_tensor/rule/adagrad.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"

// The scalars of one tensor's step, computed where the step counter lives. The same formulas as the
// rules' *_scalars<float>, bit for bit where the host's log and expm1 equal the device's; a test
// holds them together.
namespace hone::kernels::cuda {

// 1 - β^t without cancellation; 1 when β = 0.
HONE_HOST_DEVICE inline double bias_correction(double beta, Index t) {
  return beta > 0 ? -::expm1(static_cast<double>(t) * ::log(beta)) : 1.0;
}

HONE_HOST_DEVICE inline float signed_scale(bool maximize, double grad_scale) {
  return static_cast<float>(maximize ? -grad_scale : grad_scale);
}

HONE_HOST_DEVICE inline SGDScalars device_scalars(const SGDGroup& group, Index t,
                                                  double grad_scale) {
  const bool first = t == 1;
  SGDScalars s;
  s.grad_scale = signed_scale(group.maximize, grad_scale);
  s.l2 = static_cast<float>(group.weight_decay);
  s.momentum_keep = static_cast<float>(first ? 0 : group.momentum);
  s.grad_share = static_cast<float>(first ? 1 : 1 - group.dampening);
  s.look_ahead = static_cast<float>(group.nesterov ? group.momentum : 1);
  s.grad_in_update = group.nesterov ? 1.0f : 0.0f;
  s.lr = static_cast<float>(group.lr);
  return s;
}

HONE_HOST_DEVICE inline AdamScalars device_scalars(const AdamGroup& group, Index t,
                                                   double grad_scale) {
  AdamScalars s;
  s.grad_scale = signed_scale(group.maximize, grad_scale);
  s.l2 = static_cast<float>(group.decoupled ? 0 : group.weight_decay);
  s.keep = static_cast<float>(group.decoupled ? 1 - group.lr * group.weight_decay : 1);
  s.mean_share = static_cast<float>(1 - group.beta1);
  s.square_share = static_cast<float>(1 - group.beta2);
  s.step_size = static_cast<float>(group.lr / bias_correction(group.beta1, t));
  s.inverse_root_correction = static_cast<float>(1 / ::sqrt(bias_correction(group.beta2, t)));
  s.eps = static_cast<float>(group.eps);
  return s;
}

HONE_HOST_DEVICE inline LionScalars device_scalars(const LionGroup& group, Index /*t*/,
                                                   double grad_scale) {
  LionScalars s;
  s.grad_scale = signed_scale(group.maximize, grad_scale);
  s.keep = static_cast<float>(1 - group.lr * group.weight_decay);
  s.update_share = static_cast<float>(1 - group.beta1);
  s.mean_share = static_cast<float>(1 - group.beta2);
  s.lr = static_cast<float>(group.lr);
  return s;
}

HONE_HOST_DEVICE inline AdagradScalars device_scalars(const AdagradGroup& group, Index t,
                                                      double grad_scale) {
  AdagradScalars s;
  s.grad_scale = signed_scale(group.maximize, grad_scale);
  s.l2 = static_cast<float>(group.weight_decay);
  s.lr = static_cast<float>(group.lr / (1 + static_cast<double>(t - 1) * group.lr_decay));
  s.eps = static_cast<float>(group.eps);
  return s;
}

// TAMGroup without the types that device code cannot use.
struct DeviceTAMGroup {
  double lr = 0, momentum = 0, decay_rate = 0, beta2 = 0, eps = 0, weight_decay = 0;
  double eps_norm = 0, eps_corr = 0, fixed_damping = 0;
  bool decoupled = false, maximize = false, clamp = false, has_fixed_damping = false,
       average_momentum = false, bias_correction = false;
  bool operator==(const DeviceTAMGroup&) const = default;
};

inline DeviceTAMGroup for_device(const TAMGroup& group) {
  return {.lr = group.lr,
          .momentum = group.momentum,
          .decay_rate = group.decay_rate,
          .beta2 = group.beta2,
          .eps = group.eps,
          .weight_decay = group.weight_decay,
          .eps_norm = group.eps_norm,
          .eps_corr = group.eps_corr,
          .fixed_damping = group.fixed_damping.value_or(0),
          .decoupled = group.decoupled,
          .maximize = group.maximize,
          .clamp = group.guard == CosineGuard::Clamp,
          .has_fixed_damping = group.fixed_damping.has_value(),
          .average_momentum = group.average_momentum,
          .bias_correction = group.bias_correction};
}
template <class Group>
Group for_device(const Group& group) {
  return group;
}

// `correlation` is s.
HONE_HOST_DEVICE inline TAMScalars device_scalars(const DeviceTAMGroup& group, double correlation,
                                                  double grad_scale, Index t) {
  const double damping = group.has_fixed_damping ? group.fixed_damping : (1 + correlation) / 2;
  const double share = group.average_momentum ? 1 - group.momentum : 1;
  TAMScalars s;
  s.grad_scale = signed_scale(group.maximize, grad_scale);
  s.l2 = static_cast<float>(group.decoupled ? 0 : group.weight_decay);
  s.momentum_keep = static_cast<float>(group.momentum);
  s.damping = static_cast<float>((group.eps + damping) * share);
  const bool corrected = group.bias_correction;
  const double root = corrected ? ::sqrt(bias_correction(group.beta2, t)) : 1.0;
  const double mean = corrected ? bias_correction(group.momentum, t) : 1.0;
  s.lr = static_cast<float>(group.lr * root / mean);
  s.keep = static_cast<float>(group.decoupled ? 1 - group.lr * group.weight_decay : 1);
  s.square_share = static_cast<float>(1 - group.beta2);
  s.eps = static_cast<float>(group.eps * root);
  return s;
}

HONE_HOST_DEVICE inline Torque device_torque(const TorqueSums& sums, double grad_scale,
                                             const DeviceTAMGroup& group) {
  const double k = group.maximize ? -grad_scale : grad_scale;
  const double l2 = group.decoupled ? 0 : group.weight_decay;
  const double gg = k * k * sums.gg + 2 * k * l2 * sums.gp + l2 * l2 * sums.pp;
  Torque torque;
  torque.mg = k * sums.mg + l2 * sums.mp;
  torque.mm = sums.mm;
  torque.gg = gg < 0 ? 0 : gg;
  return torque;
}

HONE_HOST_DEVICE inline double device_cosine(const Torque& torque, const DeviceTAMGroup& group,
                                             bool clamp) {
  const double m = ::sqrt(torque.mm), g = ::sqrt(torque.gg);
  if (g == 0 || m == 0) return 0;
  const double floor = group.eps_corr;
  const double product = clamp ? (m > floor ? m : floor) * (g > floor ? g : floor)
                               : (m + group.eps_norm) * (g + group.eps_norm);
  const double cosine = torque.mg / product;
  return cosine > 1 ? 1 : cosine < -1 ? -1 : cosine;
}

// The new s from the old one and S.
HONE_HOST_DEVICE inline double smooth(const DeviceTAMGroup& group, double correlation,
                                      double cosine) {
  return group.decay_rate * correlation + (1 - group.decay_rate) * cosine;
}

}  // namespace hone::kernels::cuda
