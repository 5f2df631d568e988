// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "hone/core/index.h"
#include "hone/server/metrics/metrics_text.h"

namespace hone::server {

// What a server counts of its answers, whatever it serves. Thread-safe.
class HttpMetrics {
 public:
  void note_answer(std::string_view route, std::string_view method, int status);
  void note_rejected(std::string_view reason);
  void write(MetricsText& out) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::tuple<std::string, std::string, int>, Index> answers_;
  std::map<std::string, Index, std::less<>> rejected_;
};

}  // namespace hone::server
