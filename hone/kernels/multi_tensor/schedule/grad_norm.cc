// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/schedule/grad_norm.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/schedule/grad_norm.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/schedule/statistics-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

NormPart norm_1(const float* values, Index length, double /*norm_type*/) {
  const Index lanes = static_cast<Index>(hn::Lanes(Doubles()));
  DoubleVec even = hn::Zero(Doubles()), odd = even;
  Index i = 0;
  for (; i + 2 * lanes <= length; i += 2 * lanes) {
    prefetch_ahead(values + i);
    even = hn::Add(even, hn::Abs(load_as_double(values + i)));
    odd = hn::Add(odd, hn::Abs(load_as_double(values + i + lanes)));
  }
  double total = sum_lanes(even, odd);
  for (; i < length; ++i) total += std::abs(static_cast<double>(values[i]));
  return {total, 1};
}

NormPart norm_2(const float* values, Index length, double /*norm_type*/) {
  double square_sum = 0;
  gather<Statistics::Norm>({.grad = const_cast<float*>(values), .length = length}, &square_sum);
  return {std::sqrt(square_sum), 1};
}

// By the bits of |x|, whose order as integers is that of the values, with NaN above infinity.
NormPart norm_inf(const float* values, Index length, double /*norm_type*/) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> bits;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  auto most = hn::Zero(bits);
  Index i = 0;
  for (; i + lanes <= length; i += lanes) {
    prefetch_ahead(values + i);
    most = hn::Max(most, hn::BitCast(bits, hn::Abs(hn::LoadU(d, values + i))));
  }
  HWY_ALIGN float padded[hn::MaxLanes(d)] = {};
  for (Index j = i; j < length; ++j) padded[j - i] = values[j];
  most = hn::Max(most, hn::BitCast(bits, hn::Abs(hn::Load(d, padded))));
  return {static_cast<double>(hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(bits, most)))), 1};
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hone/kernels/multi_tensor/dispatch.h"

namespace hone::kernels {
namespace {

HWY_EXPORT(norm_1);
HWY_EXPORT(norm_2);
HWY_EXPORT(norm_inf);

// NaN where there is one.
double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }

}  // namespace

double combine_norms(std::span<const NormPart> parts, double norm_type) {
  double largest = 0;
  for (const NormPart& part : parts) largest = larger(largest, part.scale);
  if (largest == 0 || !std::isfinite(largest) || std::isinf(norm_type)) return largest;
  double total = 0;
  for (const NormPart& part : parts) {
    total += part.sum * std::pow(part.scale / largest, norm_type);
  }
  return largest * std::pow(total, 1 / norm_type);
}

NormPart measure_norm_reference(const float* values, Index length, double norm_type) {
  double largest = 0;
  for (Index i = 0; i < length; ++i) {
    largest = larger(largest, std::abs(static_cast<double>(values[i])));
  }
  if (largest == 0 || !std::isfinite(largest) || std::isinf(norm_type)) return {largest, 1};
  const double scale = norm_type == 1 ? 1 : largest;  // sums of magnitudes cannot overflow
  double sum = 0;
  for (Index i = 0; i < length; ++i) {
    sum += std::pow(std::abs(static_cast<double>(values[i])) / scale, norm_type);
  }
  return {scale, sum};
}

MeasureNorm choose_norm(double norm_type) {
  if (wants_reference()) return measure_norm_reference;
  if (norm_type == 1) return HWY_DYNAMIC_DISPATCH(norm_1);
  if (norm_type == 2) return HWY_DYNAMIC_DISPATCH(norm_2);
  return std::isinf(norm_type) ? HWY_DYNAMIC_DISPATCH(norm_inf) : measure_norm_reference;
}

bool report_norm(const StepControl& control, double raw_norm, StepReport& report) {
  report.grad_norm = control.inv_scale * raw_norm;
  const bool must_be_finite = control.skip_nonfinite || control.inv_scale != 1;
  report.stepped = !must_be_finite || report.first_nonfinite_tensor < 0;
  if (report.stepped && control.clip_norm > 0) {
    report.clip_coef = clip_coefficient(control.clip_norm, report.grad_norm);
  }
  return report.stepped;
}

NormSweep::NormSweep(const MultiTensorPlan& plan, double norm_type, bool wanted)
    : plan_(plan), norm_type_(norm_type) {
  if (!wanted) return;
  measure_ = choose_norm(norm_type);
  parts_.resize(static_cast<std::size_t>(plan.chunks()));
}

bool NormSweep::measure_norm(const StepControl& control, StepReport& report) const {
  for (std::size_t c = 0; c < parts_.size() && report.first_nonfinite_tensor < 0; ++c) {
    if (std::isfinite(parts_[c].scale)) continue;
    report.first_nonfinite_tensor = plan_.chunk_list()[c].tensor;
  }
  return report_norm(control, combine_norms(parts_, norm_type_), report);
}

}  // namespace hone::kernels
#endif
