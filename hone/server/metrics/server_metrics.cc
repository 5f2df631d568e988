// SPDX-License-Identifier: Apache-2.0
#include "hone/server/metrics/server_metrics.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "hone/core/check.h"

namespace hone::server {
namespace {

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

std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

void write_head(std::string& out, std::string_view name, std::string_view kind,
                std::string_view help) {
  out += concat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n");
}

void write_one(std::string& out, std::string_view name, std::string_view kind,
               std::string_view help, double value) {
  write_head(out, name, kind, help);
  out += concat(name, " ", number_text(value), "\n");
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
  const auto at = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  const std::scoped_lock lock(mutex_);
  ++counts_[static_cast<std::size_t>(at)];
  ++total_;
  sum_ += value;
}

void Histogram::write(std::string& out, std::string_view name, std::string_view help) const {
  const std::scoped_lock lock(mutex_);
  write_head(out, name, "histogram", help);
  Index below = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    out += concat(name, "_bucket{le=\"", number_text(bounds_[i]), "\"} ", below, "\n");
  }
  out += concat(name, "_bucket{le=\"+Inf\"} ", total_, "\n", name, "_sum ", number_text(sum_), "\n",
                name, "_count ", total_, "\n");
}

ServerMetrics::ServerMetrics()
    : time_to_first_token(long_times()),
      inter_token(short_times()),
      request(long_times()),
      queue(long_times()),
      prefill(long_times()),
      decode(long_times()) {}

void ServerMetrics::note_http(std::string_view route, std::string_view method, int status) {
  const std::scoped_lock lock(mutex_);
  ++http_[{std::string(route), std::string(method), status}];
}

void ServerMetrics::note_rejected(std::string_view reason) {
  const std::scoped_lock lock(mutex_);
  ++rejected_[std::string(reason)];
}

void ServerMetrics::note_end(infer::FinishReason reason, const infer::Timings& timings,
                             double seconds) {
  request.observe(seconds);
  queue.observe(timings.queue_s);
  prefill.observe(timings.prompt_s);
  decode.observe(timings.decode_s);
  const std::scoped_lock lock(mutex_);
  ++ended_[std::string(name_of(reason))];
  prompt_tokens_ += timings.prompt_tokens;
  generated_tokens_ += timings.generated_tokens;
  cached_tokens_ += timings.cached_tokens;
  mean_request_s_ += 0.1 * (seconds - mean_request_s_);
}

void ServerMetrics::note_health(bool is_well) {
  const std::scoped_lock lock(mutex_);
  failures_in_row_ = is_well ? 0 : failures_in_row_ + 1;
}

Index ServerMetrics::failures_in_row() const {
  const std::scoped_lock lock(mutex_);
  return failures_in_row_;
}

double ServerMetrics::mean_request_s() const {
  const std::scoped_lock lock(mutex_);
  return mean_request_s_;
}

std::string ServerMetrics::text(const infer::EngineStats& stats, Index connections,
                                bool is_ready) const {
  std::string out;
  const auto gauge = [&out](std::string_view name, std::string_view help, auto value) {
    write_one(out, name, "gauge", help, static_cast<double>(value));
  };
  const auto counter = [&out](std::string_view name, std::string_view help, auto value) {
    write_one(out, name, "counter", help, static_cast<double>(value));
  };
  gauge("hone_ready", "1 while requests are accepted", is_ready ? 1 : 0);
  gauge("hone_connections", "Open connections", connections);
  gauge("hone_requests_running", "Texts that the model works on", stats.running);
  gauge("hone_requests_waiting", "Texts that wait to start", stats.waiting);
  counter("hone_requests_accepted_total", "Texts that were accepted", stats.submitted);
  counter("hone_requests_finished_total", "Texts that ended by themselves", stats.succeeded);
  counter("hone_requests_failed_total", "Texts that failed", stats.failed);
  counter("hone_requests_cancelled_total", "Texts that were cancelled", stats.cancelled);
  counter("hone_preemptions_total", "Texts that lost their part of the KV cache",
          stats.preemptions);
  counter("hone_prefix_cache_queries_total", "Tokens of texts that started", stats.started_tokens);
  counter("hone_prefix_cache_hits_total", "Tokens of them that the cache had", stats.cached_tokens);
  counter("hone_prefix_cache_evictions_total", "Parts of 32 tokens that the cache gave up",
          stats.evictions);
  gauge("hone_kv_bytes", "Bytes of the KV cache in use", stats.kv_used_bytes);
  gauge("hone_kv_cached_bytes", "Bytes of it that only the prefix cache uses",
        stats.kv_cached_bytes);
  gauge("hone_kv_budget_bytes", "Bytes that the KV cache may take", stats.kv_budget_bytes);
  counter("hone_steps_total", "Runs of the model", stats.steps);
  counter("hone_step_seconds_total", "Seconds in runs of the model", stats.step_seconds);
  counter("hone_rows_total", "Tokens that the model computed", stats.rows);
  counter("hone_spec_draft_tokens_total", "Drafts", stats.drafted);
  counter("hone_spec_examined_tokens_total", "Drafts that were examined", stats.examined);
  counter("hone_spec_accepted_tokens_total", "Drafts that were accepted", stats.accepted);
  {
    const std::scoped_lock lock(mutex_);
    counter("hone_prompt_tokens_total", "Tokens of prompts of texts that ended", prompt_tokens_);
    counter("hone_cached_prompt_tokens_total", "Tokens of them that the cache had", cached_tokens_);
    counter("hone_generation_tokens_total", "Tokens of texts that ended", generated_tokens_);
    write_head(out, "hone_request_end_total", "counter", "Texts that ended, by reason");
    for (const auto& [reason, count] : ended_) {
      out += concat("hone_request_end_total{reason=\"", reason, "\"} ", count, "\n");
    }
    write_head(out, "hone_requests_rejected_total", "counter", "Requests that were refused");
    for (const auto& [reason, count] : rejected_) {
      out += concat("hone_requests_rejected_total{reason=\"", reason, "\"} ", count, "\n");
    }
    write_head(out, "hone_http_requests_total", "counter", "Answers, by route and status");
    for (const auto& [key, count] : http_) {
      const auto& [route, method, status] = key;
      out += concat("hone_http_requests_total{route=\"", route, "\",method=\"", method,
                    "\",status=\"", status, "\"} ", count, "\n");
    }
  }
  time_to_first_token.write(out, "hone_time_to_first_token_seconds",
                            "From the request to the first token");
  inter_token.write(out, "hone_inter_token_latency_seconds", "Between two tokens of a text");
  request.write(out, "hone_e2e_request_latency_seconds", "From the request to the last token");
  queue.write(out, "hone_request_queue_time_seconds", "From the request to the first step");
  prefill.write(out, "hone_request_prefill_time_seconds", "To the first token from there");
  decode.write(out, "hone_request_decode_time_seconds", "To the last token from there");
  return out;
}

}  // namespace hone::server
