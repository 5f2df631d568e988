// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "hone/core/index.h"
#include "hone/infer/engine.h"
#include "hone/server/metrics/metrics_text.h"

namespace hone::server {

// What a server counts of texts besides the engine. Thread-safe.
class TextMetrics {
 public:
  TextMetrics();

  Histogram time_to_first_token, inter_token, request, queue, prefill, decode;

  void note_end(infer::FinishReason reason, const infer::Timings& timings, double seconds);
  // Whether a text ended without a failure of the engine, and how many did not in a row.
  void note_health(bool is_well);
  Index failures_in_row() const;
  // A mean of the recent durations of requests.
  double mean_request_s() const;
  void write(MetricsText& out, const infer::EngineStats& stats) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Index, std::less<>> ended_;
  Index prompt_tokens_ = 0, generated_tokens_ = 0, cached_tokens_ = 0;
  Index failures_in_row_ = 0;
  double mean_request_s_ = 1;
};

}  // namespace hone::server
