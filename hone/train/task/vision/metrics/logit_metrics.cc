// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/metrics/logit_metrics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"

namespace hone::task {
namespace {

using torch::Tensor;

// Contiguous fp64.
Tensor checked_logits(const Tensor& logits) {
  HONE_CHECK(logits.defined() && logits.dim() == 2 && logits.size(0) > 0 && logits.size(1) > 0 &&
                 logits.is_cpu() && logits.is_floating_point(),
             "logits", "a CPU tensor [images, classes] of floating-point numbers",
             logits.defined() ? c10::str(logits.sizes()) : "none");
  return logits.detach().to(at::kDouble).contiguous();
}

void check_label_count(const Tensor& logits, std::span<const Index> labels) {
  HONE_CHECK(static_cast<Index>(labels.size()) == logits.size(0), "labels",
             concat(logits.size(0), " of them"), labels.size());
  for (const Index label : labels) {
    HONE_CHECK(label >= 0 && label < logits.size(1), "labels", concat("below ", logits.size(1)),
               label);
  }
}

std::span<const double> row_of(const Tensor& values, Index row) {
  const auto size = static_cast<std::size_t>(values.size(1));
  return {values.const_data_ptr<double>() + row * values.size(1), size};
}

// [images, 1]
Tensor column_of(std::span<const Index> labels) {
  const Tensor column = at::empty({static_cast<Index>(labels.size()), 1}, at::kLong);
  std::ranges::copy(labels, column.data_ptr<std::int64_t>());
  return column;
}

// The first and second derivative of the mean negative log-likelihood of softmax(beta z) by beta:
// the mean of E z - z_label, and of Var z, under the probabilities.
struct Slope {
  double first = 0, second = 0;
};
Slope slope_at(const Tensor& z, const Tensor& own, double beta) {
  const Tensor p = (z * beta).softmax(1), mean = (p * z).sum(1, /*keepdim=*/true);
  return {(mean - own).mean().item<double>(),
          (p * (z - mean).square()).sum(1).mean().item<double>()};
}

}  // namespace

std::vector<Index> predict_classes(const Tensor& logits) {
  const Tensor values = checked_logits(logits);
  std::vector<Index> out;
  for (Index i = 0; i < values.size(0); ++i) {
    const auto row = row_of(values, i);
    out.push_back(std::ranges::max_element(row) - row.begin());
  }
  return out;
}

double top_accuracy(const Tensor& logits, std::span<const Index> labels, Index k) {
  HONE_CHECK(k > 0, "top_accuracy", "at least one class", k);
  const Tensor values = checked_logits(logits);
  check_label_count(values, labels);
  Index right = 0;
  for (Index i = 0; i < values.size(0); ++i) {
    const auto row = row_of(values, i);
    const auto label = static_cast<std::size_t>(labels[static_cast<std::size_t>(i)]);
    Index before = 0;
    for (std::size_t c = 0; c < row.size(); ++c) {
      before += row[c] > row[label] || (row[c] == row[label] && c < label);
    }
    right += before < k;
  }
  return static_cast<double>(right) / static_cast<double>(values.size(0));
}

double mean_nll(const Tensor& logits, std::span<const Index> labels) {
  const Tensor values = checked_logits(logits);
  check_label_count(values, labels);
  return -values.log_softmax(1).gather(1, column_of(labels)).mean().item<double>();
}

Confidences confidences_of(const Tensor& logits, std::span<const Index> labels,
                           double temperature) {
  HONE_CHECK(temperature > 0, "temperature", "above 0", temperature);
  const Tensor values = checked_logits(logits);
  check_label_count(values, labels);
  const Tensor shares = (values / temperature).softmax(1);
  const std::vector<Index> predicted = predict_classes(values);
  Confidences out;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = row_of(shares, static_cast<Index>(i));
    out.confidences.push_back(row[static_cast<std::size_t>(predicted[i])]);
    out.right.push_back(predicted[i] == labels[i] ? 1 : 0);
  }
  return out;
}

double fit_temperature(const Tensor& logits, std::span<const Index> labels) {
  const Tensor z = checked_logits(logits);
  check_label_count(z, labels);
  const Tensor own = z.gather(1, column_of(labels));
  double low = 1 / kMostTemperature, high = 1 / kLeastTemperature;
  if (slope_at(z, own, low).first >= 0) return kMostTemperature;
  if (slope_at(z, own, high).first <= 0) return kLeastTemperature;
  double beta = 1;
  for (int step = 0; step < 100; ++step) {
    const Slope slope = slope_at(z, own, beta);
    (slope.first < 0 ? low : high) = beta;
    const double newton = beta - slope.first / slope.second;
    const double next = newton >= low && newton <= high ? newton : std::sqrt(low * high);
    const double moved = std::abs(next - beta);
    beta = next;
    if (moved <= 1e-9 * beta) break;
  }
  return 1 / beta;
}

TemperatureScaling scale_temperature(const Tensor& logits, std::span<const Index> labels,
                                     Index bins) {
  const Tensor values = checked_logits(logits);
  check_label_count(values, labels);
  HONE_CHECK(labels.size() >= 2, "scale_temperature", "at least two images", labels.size());
  std::vector<Index> even, odd;
  for (std::size_t i = 0; i < labels.size(); ++i) (i % 2 == 0 ? even : odd).push_back(labels[i]);
  const Tensor scored = values.slice(0, 1, values.size(0), 2);
  const auto error_at = [&](double temperature) {
    const Confidences found = confidences_of(scored, odd, temperature);
    return calibration_error(calibration_bins(found.confidences, found.right, bins));
  };
  const double temperature = fit_temperature(values.slice(0, 0, values.size(0), 2), even);
  return {temperature, static_cast<Index>(odd.size()), error_at(1), error_at(temperature)};
}

}  // namespace hone::task
