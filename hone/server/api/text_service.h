// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/machine/clock.h"
#include "hone/infer/engine.h"
#include "hone/server/metrics/text_metrics.h"
#include "hone/server/service.h"
#include "hone/server/tools/chat_style.h"
#include "hone/server/tools/format_cache.h"
#include "hone/server/workers.h"
#include "hone/text/chat_template/chat_template.h"

namespace hone::server {

// The model that a server answers for. The objects must outlive the server.
struct ServedModel {
  infer::Engine* engine = nullptr;
  std::shared_ptr<const text::ChatTemplate> chat_template{};  // null without one
  std::string id{};                                           // of /v1/models
  std::int64_t created = 0;                                   // seconds since 1970
};

class Generation;

// Answers for a language model. The engine must run meanwhile, and call on_step_end().
class TextService final : public Service {
 public:
  // The engine must have a tokenizer.
  TextService(ServedModel model, const Clock& clock);
  TextService(const TextService&) = delete;
  TextService& operator=(const TextService&) = delete;

  const std::vector<Route>& routes() const override { return routes_; }
  std::string trouble() const override;
  int retry_after_s() const override;
  void write_metrics(MetricsText& out) const override;
  void tick() override;
  bool is_idle() const override { return *held_ == 0 && open_generations().empty(); }
  void cancel_all() override;

  infer::Engine& engine() const { return *model_.engine; }
  const ServedModel& model() const { return model_; }
  const Clock& clock() const { return clock_; }
  TextMetrics& metrics() { return metrics_; }
  const TextMetrics& metrics() const { return metrics_; }
  const ChatStyle& style() const { return style_; }
  FormatCache& formats() { return formats_; }
  std::string fingerprint() const { return fingerprint_; }
  // Runs a job that computes much, such as an answer with the scores of a prompt, on a thread of
  // its own: the writer of answers must not wait for it.
  void post(std::function<void()> job) { worker_.post(std::move(job)); }
  // As long as the result lives, a request without a generation has not been answered. Throws
  // ApiError{429} if there are many.
  std::shared_ptr<void> hold() const;
  // Runs posted jobs to their end; later ones never run. Call it before the engine ends.
  void finish();
  // No text of more bytes fits into the context.
  Index most_bytes() const { return most_bytes_; }

  // Generations with new events; the engine's thread adds them, and hands them to the writer at the
  // end of each step (EngineOptions::on_step_end).
  void add_dirty(std::shared_ptr<Generation> generation);
  void on_step_end();
  // Generations that have not ended, for pings and for the end of the server.
  void enter(const std::shared_ptr<Generation>& generation);
  void leave(const Generation* generation);

 private:
  std::vector<std::shared_ptr<Generation>> open_generations() const;
  void watch_steps();

  const ServedModel model_;
  const Clock& clock_;
  TextMetrics metrics_;
  const ChatStyle style_;
  FormatCache formats_;
  std::string fingerprint_;
  Index most_bytes_ = 0;
  const std::vector<Route> routes_;
  Index last_steps_ = 0;             // of tick()
  std::atomic<Index> stalled_s_{0};  // since a step ended, while texts run
  const std::shared_ptr<std::atomic<Index>> held_ = std::make_shared<std::atomic<Index>>(0);
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Generation>> dirty_;
  std::vector<std::weak_ptr<Generation>> open_;
  Workers writer_, worker_;  // end first
};

}  // namespace hone::server
