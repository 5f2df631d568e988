// SPDX-License-Identifier: Apache-2.0
#include "hone/server/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/server/access.h"
#include "hone/server/api/api_error.h"
#include "hone/server/metrics/http_metrics.h"
#include "hone/server/workers.h"

namespace hone::server {
namespace {

constexpr int kReaders = 2;
constexpr std::string_view kMetrics = "/metrics";

bool is_health(std::string_view path) {
  return path == "/readyz" || path == "/health" || path == "/v1/health";
}

// Methods come from clients, labels from a fixed set.
std::string_view counted_method(std::string_view method) {
  for (const std::string_view known : {"GET", "POST", "HEAD", "OPTIONS", "DELETE", "PUT"}) {
    if (method == known) return known;
  }
  return "other";
}

// Why a request was refused, for the metrics.
std::string_view rejection(int status) {
  switch (status) {
    case 401:
    case 403:
      return "access";
    case 429:
      return "queue";
    case 503:
      return "unavailable";
    case 500:
      return "failure";
    default:
      return "request";
  }
}

// JSON, an image, or nothing: a browser sends a form without asking first.
void check_type(const Route& route, const HttpRequest& request) {
  if (route.method != "POST") return;
  const std::string type = media_type(request);
  if (type == "application/json") return;
  if (route.takes_images && type.starts_with("image/")) return;
  throw ApiError(415, concat("The header Content-Type must be application/json",
                             route.takes_images ? ", or that of an image" : "", "."));
}

}  // namespace

struct Server::State {
  State(const ServerOptions& options_in, Service& service_in)
      : options(options_in),
        access(options_in),
        service(service_in),
        listener(
            options.listener, [this](const std::shared_ptr<Exchange>& e) { handle(e); },
            [this](const HttpRequest& request, int status) {
              metrics.note_answer(counted_path(request.path), counted_method(request.method),
                                  status);
            },
            [this](const HttpRequest& head) { return refuse_head(head); }) {}

  std::string_view counted_path(std::string_view path) const;
  void handle(const std::shared_ptr<Exchange>& exchange);
  void answer(const Route& route, const std::shared_ptr<Exchange>& exchange, std::uint64_t salt);
  const Route* find_route(const HttpRequest& request) const;
  [[noreturn]] void fail_without_route(const HttpRequest& request) const;
  std::string trouble() const;
  bool is_idle() const { return reading == 0 && service.is_idle(); }
  std::optional<HttpResponse> refuse_head(const HttpRequest& head);
  HttpResponse refusal(const std::string& id, const std::exception_ptr& error);
  void respond_health(Exchange& exchange) const;
  void respond_metrics(Exchange& exchange) const;
  void refuse(Exchange& exchange, const std::exception_ptr& error);
  void tick();

  const ServerOptions options;
  const Access access;
  Service& service;
  HttpMetrics metrics;
  std::atomic<bool> is_ready{false};
  std::atomic<Index> reading{0};  // requests that readers have, or are about to get
  std::mutex tick_mutex;
  std::condition_variable ticked;
  bool is_ending = false;
  std::thread ticker;
  // They read requests: JSON, templates, tokenizing, images.
  Workers readers{kReaders};
  Listener listener;  // ends first
};

// The name under which a path is counted.
std::string_view Server::State::counted_path(std::string_view path) const {
  if (is_health(path) || path == "/livez" || path == kMetrics) return path;
  for (const Route& route : service.routes()) {
    if (route.has(path)) return route.path;
  }
  return "other";
}

// What keeps the server from answering; empty if nothing does.
std::string Server::State::trouble() const {
  return is_ready ? service.trouble() : ending_error().what();
}

void Server::State::respond_health(Exchange& exchange) const {
  const std::string problem = exchange.request().path == "/livez" ? std::string() : trouble();
  if (problem.empty()) return exchange.respond({.body = "{\"status\":\"ok\"}\n"});
  exchange.respond(passing_error(503, problem).response());
}

void Server::State::respond_metrics(Exchange& exchange) const {
  MetricsText out;
  out.gauge("hone_ready", "1 while requests are accepted", Index{trouble().empty()});
  out.gauge("hone_connections", "Open connections", listener.connections());
  service.write_metrics(out);
  metrics.write(out);
  exchange.respond({.type = "text/plain; version=0.0.4; charset=utf-8", .body = out.text()});
}

// Null if there is none.
const Route* Server::State::find_route(const HttpRequest& request) const {
  const std::string_view asked = request.method, method = asked == "HEAD" ? "GET" : asked;
  const auto found = std::ranges::find_if(service.routes(), [&](const Route& route) {
    return route.has(request.path) && route.method == method;
  });
  return found == service.routes().end() ? nullptr : &*found;
}

void Server::State::fail_without_route(const HttpRequest& request) const {
  const auto other = std::ranges::find_if(
      service.routes(), [&](const Route& route) { return route.has(request.path); });
  const bool is_own =
      is_health(request.path) || request.path == "/livez" || request.path == kMetrics;
  if (other == service.routes().end() && !is_own) {
    throw ApiError(404, "There is no such path.", {}, "unknown_path");
  }
  const std::string_view method = is_own ? "GET" : other->method;
  ApiError error(405, concat("This path takes ", method, " only."), {}, "method");
  error.allow = method;
  throw error;
}

HttpResponse Server::State::refusal(const std::string& id, const std::exception_ptr& error) {
  ApiError told = to_api_error(error);
  if (told.status() == 500) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& cause) {
      log_error(concat("[serve] ", id, ": ", cause.what()));
    }
  }
  if (told.retry_after_s > 0) told.retry_after_s = service.retry_after_s();
  metrics.note_rejected(rejection(told.status()));
  return told.response();
}

void Server::State::refuse(Exchange& exchange, const std::exception_ptr& error) {
  exchange.respond(refusal(exchange.request().id, error));
}

// A stranger's large body is not read.
std::optional<HttpResponse> Server::State::refuse_head(const HttpRequest& head) {
  try {
    const Route* const route = find_route(head);
    if (route == nullptr || !route->is_open) access.check(head);
    return std::nullopt;
  } catch (...) {
    HttpResponse out = refusal(head.id, std::current_exception());
    const HttpFields cors = access.cors_fields(head);
    for (const auto& [name, value] : cors.all()) out.fields.add(name, value);
    return out;
  }
}

// On the thread of the listener: looks at the head, and leaves the rest to the readers.
void Server::State::handle(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  try {
    exchange->set_fields(access.cors_fields(request));
    if (request.method == "OPTIONS") return exchange->respond({.status = 204, .body = {}});
    const bool is_get = request.method == "GET" || request.method == "HEAD";
    if (is_get && (is_health(request.path) || request.path == "/livez")) {
      return respond_health(*exchange);
    }
    const Route* const route = find_route(request);
    if (route != nullptr && route->is_open) return route->handle(exchange, 0);
    const std::uint64_t salt = access.check(request);
    if (is_get && request.path == kMetrics) return respond_metrics(*exchange);
    if (route == nullptr) fail_without_route(request);
    check_type(*route, request);
    // Counted before the check, so that stop() sees what it does not refuse.
    ++reading;
    const std::shared_ptr<void> counted(
        &reading, [](void* count) { --*static_cast<std::atomic<Index>*>(count); });
    if (!is_ready) throw ending_error();
    readers.post([this, route, exchange, salt, counted] { answer(*route, exchange, salt); });
  } catch (...) {
    refuse(*exchange, std::current_exception());
  }
}

void Server::State::answer(const Route& route, const std::shared_ptr<Exchange>& exchange,
                           std::uint64_t salt) {
  if (exchange->is_closed()) return;
  try {
    route.handle(exchange, salt);
  } catch (...) {
    refuse(*exchange, std::current_exception());
  }
}

void Server::State::tick() {
  std::unique_lock lock(tick_mutex);
  while (!ticked.wait_for(lock, std::chrono::seconds(1), [this] { return is_ending; })) {
    lock.unlock();
    service.tick();
    lock.lock();
  }
}

Server::Server(const ServerOptions& options, Service& service)
    : state_(std::make_unique<State>(options, service)) {}

Server::~Server() { stop(); }

int Server::port() const { return state_->listener.port(); }

void Server::start() {
  state_->is_ready = true;
  state_->ticker = std::thread([state = state_.get()] { state->tick(); });
  state_->listener.start();
}

void Server::stop() {
  State& state = *state_;
  if (!state.ticker.joinable()) return;
  state.is_ready = false;
  state.listener.drain();
  state.service.hurry();
  const auto wait_for_end = [&](double seconds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!state.is_idle() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  wait_for_end(state.options.drain_s);
  state.service.cancel_all();
  constexpr double kLastEventsS = 2;
  wait_for_end(kLastEventsS);
  {
    const std::scoped_lock lock(state.tick_mutex);
    state.is_ending = true;
  }
  state.ticked.notify_all();
  state.ticker.join();
  // What has been answered gets its time to be sent.
  for (int i = 0; i < 100 && state.listener.connections() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  state.listener.stop();
}

}  // namespace hone::server
