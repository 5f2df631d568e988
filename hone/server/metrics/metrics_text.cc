// SPDX-License-Identifier: Apache-2.0
#include "hone/server/metrics/metrics_text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "hone/core/check.h"

namespace hone::server {
namespace {

std::string metric_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.15g", value);
  return text.data();
}

}  // namespace

void MetricsText::head(std::string_view name, std::string_view kind, std::string_view help) {
  text_ += concat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n");
}

void MetricsText::line(std::string_view name, std::string_view labels, double value) {
  text_ += concat(name, labels.empty() ? "" : "{", labels, labels.empty() ? " " : "} ",
                  metric_number(value), "\n");
}

void MetricsText::gauge(std::string_view name, std::string_view help, double value) {
  head(name, "gauge", help);
  line(name, {}, value);
}

void MetricsText::counter(std::string_view name, std::string_view help, double value) {
  head(name, "counter", help);
  line(name, {}, value);
}

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
  const auto at = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  const std::scoped_lock lock(mutex_);
  ++counts_[static_cast<std::size_t>(at)];
  ++total_;
  sum_ += value;
}

void Histogram::write(MetricsText& out, std::string_view name, std::string_view help) const {
  const std::scoped_lock lock(mutex_);
  out.head(name, "histogram", help);
  const std::string bucket = concat(name, "_bucket");
  Index below = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    out.line(bucket, concat("le=\"", metric_number(bounds_[i]), "\""), static_cast<double>(below));
  }
  out.line(bucket, "le=\"+Inf\"", static_cast<double>(total_));
  out.line(concat(name, "_sum"), {}, sum_);
  out.line(concat(name, "_count"), {}, static_cast<double>(total_));
}

const std::vector<double>& long_times() {
  static const std::vector<double> bounds = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                             2.5,  5,     10,   25,  50,   100, 250};
  return bounds;
}

const std::vector<double>& short_times() {
  static const std::vector<double> bounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                             0.1,   0.25,   0.5,   1,    2.5,   5};
  return bounds;
}

}  // namespace hone::server
