// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hone/server/http/exchange.h"
#include "hone/server/metrics/metrics_text.h"

namespace hone::server {

// Answers a request, now or later. Threads of the server call it. `salt` is the tenant. What it
// throws is the answer.
using Handler = std::function<void(const std::shared_ptr<Exchange>& exchange, std::uint64_t salt)>;

struct Route {
  // Both have static storage duration. A path that ends with "/" has all paths that begin so, but
  // for "/" itself.
  std::string_view method, path;
  Handler handle;
  bool is_open = false;       // needs no key, and answers at once
  bool takes_images = false;  // a body of type image/*, besides JSON

  bool has(std::string_view asked) const {
    const bool is_folder = path.size() > 1 && path.ends_with('/');
    return asked == path || (is_folder && asked.starts_with(path));
  }
};

// What a server serves: the routes of a kind of model, and how it is.
class Service {
 public:
  virtual ~Service() = default;

  // The same at all times.
  virtual const std::vector<Route>& routes() const = 0;
  // What keeps the service from answering; empty if nothing does.
  virtual std::string trouble() const = 0;
  // The seconds after which a client that was refused may come again.
  virtual int retry_after_s() const = 0;
  virtual void write_metrics(MetricsText& out) const = 0;
  // Called once a second.
  virtual void tick() = 0;
  // The server is about to end: nothing that comes later can share work with what is there.
  virtual void hurry() {}
  // Whether all that was accepted has been answered.
  virtual bool is_idle() const = 0;
  // Answers what has not been answered soon, as it is.
  virtual void cancel_all() = 0;
};

}  // namespace hone::server
