// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hone/core/machine/clock.h"
#include "hone/infer/engine.h"
#include "hone/server/metrics/server_metrics.h"
#include "hone/server/tools/chat_style.h"
#include "hone/server/tools/format_cache.h"
#include "hone/text/chat_template/chat_template.h"

namespace hone::server {

// The model that a server answers for. The objects must outlive the server.
struct ServedModel {
  infer::Engine* engine = nullptr;
  std::shared_ptr<const text::ChatTemplate> chat_template{};  // null without one
  std::string id{};                                           // of /v1/models
  std::int64_t created = 0;                                   // seconds since 1970
};

// Threads that run jobs in their order.
class Workers {
 public:
  explicit Workers(int threads);
  ~Workers();  // runs what waits
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  void post(std::function<void()> job);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

class Generation;

// What all requests share.
class Service {
 public:
  Service(ServedModel model, const Clock& clock);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  infer::Engine& engine() const { return *model_.engine; }
  const ServedModel& model() const { return model_; }
  const Clock& clock() const { return clock_; }
  ServerMetrics& metrics() { return metrics_; }
  const ServerMetrics& metrics() const { return metrics_; }
  const ChatStyle& style() const { return style_; }
  FormatCache& formats() { return formats_; }
  // Threads that read requests: JSON, templates, tokenizing. Writing answers has its own, so that a
  // long prompt does not hold up streams.
  Workers& workers() { return workers_; }
  std::string fingerprint() const { return fingerprint_; }
  // No text of more bytes fits into the context.
  Index most_bytes() const { return most_bytes_; }

  // Generations with new events; the engine's thread adds them, and hands them to the workers at
  // the end of each step.
  void add_dirty(std::shared_ptr<Generation> generation);
  void on_step_end();
  // Generations that have not ended, for pings and for the end of the server.
  void enter(const std::shared_ptr<Generation>& generation);
  void leave(const Generation* generation);
  std::vector<std::shared_ptr<Generation>> open_generations();
  // The seconds after which a client that was refused may come again.
  int retry_after_s() const;

 private:
  const ServedModel model_;
  const Clock& clock_;
  ServerMetrics metrics_;
  const ChatStyle style_;
  FormatCache formats_;
  std::string fingerprint_;
  Index most_bytes_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Generation>> dirty_;
  std::vector<std::weak_ptr<Generation>> open_;
  Workers writer_, workers_;  // end first
};

}  // namespace hone::server
