// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hone/core/index.h"
#include "hone/server/http/exchange.h"

namespace hone::server {

struct ListenerOptions {
  std::string host = "127.0.0.1";  // a name or an address
  int port = 8080;                 // 0: any free one
  Index max_connections = 1024;
  Index max_body = Index{4} << 20;   // bytes
  Index max_head = Index{16} << 10;  // bytes of the request line and the header fields
  double idle_s = 60;                // between two requests of a connection
  double head_s = 10, body_s = 60;   // to receive the parts of a request
  double send_s = 60;                // without progress while sending
};

// Accepts connections and reads their requests, on one thread of its own that computes nothing.
// What is no HTTP, too large or too slow is answered here.
class Listener {
 public:
  // Called for each request, on the listener's thread. Must return soon, and not throw.
  using Handler = std::function<void(const std::shared_ptr<Exchange>&)>;
  // Called with the status and the path of a request that was refused here, or whose answer has
  // begun.
  using Observer = std::function<void(const HttpRequest&, int status)>;

  // Called with the head of a request whose body is large, before that is read: an answer refuses
  // the request. As for a handler.
  using Gate = std::function<std::optional<HttpResponse>(const HttpRequest&)>;

  // Throws Error{Io} if the address cannot be had, Error{InvalidArgument} for options that mean
  // nothing. Nobody is accepted before start().
  Listener(const ListenerOptions& options, Handler handler, Observer observer, Gate gate = {});
  ~Listener();  // stop()
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const;
  Index connections() const;
  void start();
  // Closes connections that wait for a request. Answers go on, and new connections have one request
  // each.
  void drain();
  // Closes all connections and ends the thread.
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hone::server
