// SPDX-License-Identifier: Apache-2.0
#include "hone/server/metrics/http_metrics.h"

#include "hone/core/check.h"

namespace hone::server {

void HttpMetrics::note_answer(std::string_view route, std::string_view method, int status) {
  const std::scoped_lock lock(mutex_);
  ++answers_[{std::string(route), std::string(method), status}];
}

void HttpMetrics::note_rejected(std::string_view reason) {
  const std::scoped_lock lock(mutex_);
  ++rejected_[std::string(reason)];
}

void HttpMetrics::write(MetricsText& out) const {
  const std::scoped_lock lock(mutex_);
  constexpr std::string_view kRejected = "hone_requests_rejected_total";
  out.head(kRejected, "counter", "Requests that were refused");
  for (const auto& [reason, count] : rejected_) {
    out.line(kRejected, concat("reason=\"", reason, "\""), static_cast<double>(count));
  }
  constexpr std::string_view kAnswers = "hone_http_requests_total";
  out.head(kAnswers, "counter", "Answers, by route and status");
  for (const auto& [key, count] : answers_) {
    const auto& [route, method, status] = key;
    out.line(kAnswers,
             concat("route=\"", route, "\",method=\"", method, "\",status=\"", status, "\""),
             static_cast<double>(count));
  }
}

}  // namespace hone::server
