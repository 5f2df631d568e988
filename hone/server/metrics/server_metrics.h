// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "hone/core/index.h"
#include "hone/infer/engine.h"

namespace hone::server {

// Counts of observations by size, as Prometheus keeps them. Thread-safe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void observe(double value);
  // Lines of the text format, with this name.
  void write(std::string& out, std::string_view name, std::string_view help) const;

 private:
  const std::vector<double> bounds_;  // upper, ascending
  mutable std::mutex mutex_;
  std::vector<Index> counts_;
  double sum_ = 0;
  Index total_ = 0;
};

// What the server counts besides the engine. Thread-safe.
class ServerMetrics {
 public:
  ServerMetrics();

  Histogram time_to_first_token, inter_token, request, queue, prefill, decode;

  void note_http(std::string_view route, std::string_view method, int status);
  void note_rejected(std::string_view reason);
  void note_end(infer::FinishReason reason, const infer::Timings& timings, double seconds);
  // Whether a text ended without a failure of the engine, and how many did not in a row.
  void note_health(bool is_well);
  Index failures_in_row() const;
  // A mean of the recent durations of requests.
  double mean_request_s() const;
  // The text format of Prometheus, version 0.0.4.
  std::string text(const infer::EngineStats& stats, Index connections, bool is_ready) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::tuple<std::string, std::string, int>, Index> http_;
  std::map<std::string, Index, std::less<>> rejected_, ended_;
  Index prompt_tokens_ = 0, generated_tokens_ = 0, cached_tokens_ = 0;
  Index failures_in_row_ = 0;
  double mean_request_s_ = 1;
};

}  // namespace hone::server
