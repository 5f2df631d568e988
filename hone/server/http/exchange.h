// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "hone/core/index.h"
#include "hone/server/http/http_message.h"

namespace hone::server {

// A request and its answer on the way to the client. Handlers answer from any thread, at once or
// later, with one response or with a stream. The bytes wait here until the connection takes them.
class Exchange {
 public:
  explicit Exchange(HttpRequest request, bool keeps_alive, bool is_chunked)
      : request_(std::move(request)), keeps_alive_(keeps_alive), is_chunked_(is_chunked) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const HttpRequest& request() const { return request_; }

  // Header fields of any answer. Before it begins.
  void set_fields(HttpFields fields) { fields_ = std::move(fields); }
  // Sends a response, unless something was sent before.
  void respond(const HttpResponse& response);
  // Sends the head of a response whose body follows in pieces.
  void begin_stream(std::string_view type, const HttpFields& fields = {});
  // Returns false if the client has gone, or takes too little of what it gets.
  bool write(std::string_view piece);
  // `complete`: false closes the connection, so that the client sees that something is missing.
  void end_stream(bool complete = true);

  // Called once, on the thread of the connection, when the client is gone before the answer is
  // complete. Called at once if it is gone already.
  void on_close(std::function<void()> callback);
  bool is_closed() const;

  // The connection calls the functions below. `wake` is called whenever there are new bytes or the
  // answer is complete.
  void set_wake(std::function<void()> wake);
  std::string take();  // the bytes to send now
  bool is_complete() const;
  bool keeps_alive() const;
  void close();
  int status() const;

 private:
  std::string head(int status, std::string_view type, const HttpFields& fields) const;
  void push(std::string_view bytes, bool completes);

  const HttpRequest request_;
  HttpFields fields_;
  mutable std::mutex mutex_;
  std::string out_;
  std::function<void()> wake_, closed_callback_;
  int status_ = 0;
  bool keeps_alive_ = true;
  const bool is_chunked_;
  bool has_begun_ = false, is_complete_ = false, is_closed_ = false;
};

// The most bytes that wait for a client that reads slowly.
inline constexpr Index kMostUnsentBytes = Index{4} << 20;

}  // namespace hone::server
