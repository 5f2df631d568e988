// SPDX-License-Identifier: Apache-2.0
#include "hone/server/metrics/text_metrics.h"

#include <string_view>

#include "hone/core/check.h"

namespace hone::server {

TextMetrics::TextMetrics()
    : time_to_first_token(long_times()),
      inter_token(short_times()),
      request(long_times()),
      queue(long_times()),
      prefill(long_times()),
      decode(long_times()) {}

void TextMetrics::note_end(infer::FinishReason reason, const infer::Timings& timings,
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

void TextMetrics::note_health(bool is_well) {
  const std::scoped_lock lock(mutex_);
  failures_in_row_ = is_well ? 0 : failures_in_row_ + 1;
}

Index TextMetrics::failures_in_row() const {
  const std::scoped_lock lock(mutex_);
  return failures_in_row_;
}

double TextMetrics::mean_request_s() const {
  const std::scoped_lock lock(mutex_);
  return mean_request_s_;
}

void TextMetrics::write(MetricsText& out, const infer::EngineStats& stats) const {
  out.gauge("hone_requests_running", "Texts that the model works on", stats.running);
  out.gauge("hone_requests_waiting", "Texts that wait to start", stats.waiting);
  out.counter("hone_requests_accepted_total", "Texts that were accepted", stats.submitted);
  out.counter("hone_requests_finished_total", "Texts that ended by themselves", stats.succeeded);
  out.counter("hone_requests_failed_total", "Texts that failed", stats.failed);
  out.counter("hone_requests_cancelled_total", "Texts that were cancelled", stats.cancelled);
  out.counter("hone_preemptions_total", "Texts that lost their part of the KV cache",
              stats.preemptions);
  out.counter("hone_prefix_cache_queries_total", "Tokens of texts that started",
              stats.started_tokens);
  out.counter("hone_prefix_cache_hits_total", "Tokens of them that the cache had",
              stats.cached_tokens);
  out.counter("hone_prefix_cache_evictions_total", "Parts of 32 tokens that the cache gave up",
              stats.evictions);
  out.gauge("hone_kv_bytes", "Bytes of the KV cache in use", stats.kv_used_bytes);
  out.gauge("hone_kv_cached_bytes", "Bytes of it that only the prefix cache uses",
            stats.kv_cached_bytes);
  out.gauge("hone_kv_budget_bytes", "Bytes that the KV cache may take", stats.kv_budget_bytes);
  out.counter("hone_steps_total", "Runs of the model", stats.steps);
  out.counter("hone_step_seconds_total", "Seconds in runs of the model", stats.step_seconds);
  out.counter("hone_rows_total", "Tokens that the model computed", stats.rows);
  out.counter("hone_spec_draft_tokens_total", "Drafts", stats.drafted);
  out.counter("hone_spec_examined_tokens_total", "Drafts that were examined", stats.examined);
  out.counter("hone_spec_accepted_tokens_total", "Drafts that were accepted", stats.accepted);
  {
    const std::scoped_lock lock(mutex_);
    out.counter("hone_prompt_tokens_total", "Tokens of prompts of texts that ended",
                prompt_tokens_);
    out.counter("hone_cached_prompt_tokens_total", "Tokens of them that the cache had",
                cached_tokens_);
    out.counter("hone_generation_tokens_total", "Tokens of texts that ended", generated_tokens_);
    constexpr std::string_view kEnds = "hone_request_end_total";
    out.head(kEnds, "counter", "Texts that ended, by reason");
    for (const auto& [reason, count] : ended_) {
      out.line(kEnds, concat("reason=\"", reason, "\""), static_cast<double>(count));
    }
  }
  time_to_first_token.write(out, "hone_time_to_first_token_seconds",
                            "From the request to the first token");
  inter_token.write(out, "hone_inter_token_latency_seconds", "Between two tokens of a text");
  request.write(out, "hone_e2e_request_latency_seconds", "From the request to the last token");
  queue.write(out, "hone_request_queue_time_seconds", "From the request to the first step");
  prefill.write(out, "hone_request_prefill_time_seconds", "To the first token from there");
  decode.write(out, "hone_request_decode_time_seconds", "To the last token from there");
}

}  // namespace hone::server
