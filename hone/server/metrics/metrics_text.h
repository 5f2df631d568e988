// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"

namespace hone::server {

// Writes the text format of Prometheus, version 0.0.4.
class MetricsText {
 public:
  void gauge(std::string_view name, std::string_view help, double value);
  void counter(std::string_view name, std::string_view help, double value);
  void gauge(std::string_view name, std::string_view help, Index value) {
    gauge(name, help, static_cast<double>(value));
  }
  void counter(std::string_view name, std::string_view help, Index value) {
    counter(name, help, static_cast<double>(value));
  }
  // Begins a metric; its lines follow. `kind` is "counter", "gauge" or "histogram".
  void head(std::string_view name, std::string_view kind, std::string_view help);
  // `labels` is 'reason="stop"', or empty.
  void line(std::string_view name, std::string_view labels, double value);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Counts of observations by size, as Prometheus keeps them. Thread-safe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);  // upper, ascending
  void observe(double value);
  void write(MetricsText& out, std::string_view name, std::string_view help) const;

 private:
  const std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<Index> counts_;
  double sum_ = 0;
  Index total_ = 0;
};

// Bounds in seconds for requests and for parts of them.
const std::vector<double>& long_times();
const std::vector<double>& short_times();

}  // namespace hone::server
