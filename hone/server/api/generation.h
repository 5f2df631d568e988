// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "hone/infer/engine.h"
#include "hone/server/api/api_error.h"
#include "hone/server/api/text_service.h"
#include "hone/server/http/exchange.h"

namespace hone::server {

// Turns the events of a generation into the answer of an API. One thread at a time calls it.
class Answer {
 public:
  virtual ~Answer() = default;
  // An event of a choice, in order. Returns false if the client has gone or reads too slowly.
  virtual bool on_event(std::size_t choice, const infer::Event& event) = 0;
  // All choices have ended.
  virtual void on_end() = 0;
  // One of them has failed; nothing follows.
  virtual void on_error(const ApiError& error) = 0;
  // Nothing happened for a while. Streams tell the client that the server is there.
  virtual void on_silence() {}
};

// The texts of one request on their way from the engine to the client.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(TextService& service, std::shared_ptr<Exchange> exchange,
             std::unique_ptr<Answer> answer)
      : service_(service), exchange_(std::move(exchange)), answer_(std::move(answer)) {}

  // Submits all texts, or none: throws what Engine::submit() throws.
  void start(std::vector<infer::Request> requests);
  void start(infer::Request request);
  // Hands new events to the answer.
  void drain();
  // Cancels the texts; their last events still come.
  void cancel();
  // Calls on_silence() if there was no event for `seconds`.
  void ping(double seconds);

 private:
  class Sink;
  void push(std::size_t choice, const infer::Event& event);
  void take(std::size_t choice, const infer::Event& event);
  void fail(const ApiError& error);

  TextService& service_;
  const std::shared_ptr<Exchange> exchange_;
  const std::unique_ptr<Answer> answer_;
  std::mutex inbox_mutex_;  // of the inbox
  std::vector<std::pair<std::size_t, infer::Event>> inbox_;
  bool is_dirty_ = false;
  std::mutex mutex_;  // of what follows
  std::vector<RequestId> ids_;
  std::size_t open_ = 0;
  TimeNs started_ = 0, last_event_ = 0;
  std::vector<TimeNs> last_token_;  // of each choice; 0 before the first
  bool has_failed_ = false;
};

}  // namespace hone::server
