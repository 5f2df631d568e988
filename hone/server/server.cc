// SPDX-License-Identifier: Apache-2.0
#include "hone/server/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/server/access.h"
#include "hone/server/api/api_error.h"
#include "hone/server/api/generation.h"
#include "hone/server/api/routes.h"
#include "hone/server/page/page.h"

namespace hone::server {
namespace {

constexpr double kSilenceS = 15;  // then a stream tells that it lives
// Then the server says that it is not ready.
constexpr Index kMostStalledS = 60, kMostFailures = 8;
constexpr std::string_view kMetrics = "/metrics";

bool is_health(std::string_view path) {
  return path == "/readyz" || path == "/health" || path == "/v1/health";
}

// The name under which a path is counted.
std::string_view counted_path(std::string_view path) {
  if (is_health(path) || path == "/livez" || path == kMetrics) return path;
  for (const Route& route : routes()) {
    if (route.path == path) return route.path;
  }
  return "other";
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

// JSON, or nothing: a browser sends a form without asking first.
void check_type(const HttpRequest& request) {
  if (request.method != "POST") return;
  const std::string_view type = request.fields.find("content-type").value_or("");
  if (type.starts_with("application/json")) return;
  throw ApiError(415, "The header Content-Type must be application/json.");
}

}  // namespace

struct Server::State {
  State(const ServerOptions& options_in, ServedModel model, const Clock& clock)
      : options(options_in),
        access(options_in),
        service(std::move(model), clock),
        listener(
            options.listener, [this](const std::shared_ptr<Exchange>& e) { handle(e); },
            [this](const HttpRequest& request, int status) {
              service.metrics().note_http(counted_path(request.path),
                                          counted_method(request.method), status);
            }) {}

  void handle(const std::shared_ptr<Exchange>& exchange);
  void answer(const std::shared_ptr<Exchange>& exchange, std::uint64_t salt);
  const Route& find_route(const HttpRequest& request) const;
  std::string trouble() const;
  void respond_health(Exchange& exchange) const;
  void watch_steps();
  static void respond_page(Exchange& exchange);
  void respond_metrics(Exchange& exchange);
  void refuse(Exchange& exchange, const std::exception_ptr& error);
  void tick();

  const ServerOptions options;
  const Access access;
  Service service;
  std::atomic<bool> is_ready{false};
  Index last_steps = 0;             // of the ticker
  std::atomic<Index> stalled_s{0};  // since a step ended, while texts run
  std::mutex tick_mutex;
  std::condition_variable ticked;
  bool is_ending = false;
  std::thread ticker;
  Listener listener;  // ends first
};

// What keeps the server from answering; empty if nothing does.
std::string Server::State::trouble() const {
  if (!is_ready) return "The server is about to end.";
  const Index stalled = stalled_s;
  if (stalled >= kMostStalledS) return concat("No step has ended for ", stalled, " s.");
  const Index failures = service.metrics().failures_in_row();
  if (failures >= kMostFailures) return concat("The last ", failures, " texts have failed.");
  return {};
}

void Server::State::respond_health(Exchange& exchange) const {
  const std::string problem = exchange.request().path == "/livez" ? std::string() : trouble();
  if (problem.empty()) return exchange.respond({.body = "{\"status\":\"ok\"}\n"});
  ApiError error(503, problem);
  error.retry_after_s = 1;
  exchange.respond(error.response());
}

// The page holds nothing that needs a key; what it asks for does.
void Server::State::respond_page(Exchange& exchange) {
  HttpResponse response{.type = "text/html; charset=utf-8", .body = std::string(page_text())};
  response.fields.add("Content-Security-Policy",
                      "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                      "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; "
                      "form-action 'none'");
  exchange.respond(response);
}

void Server::State::respond_metrics(Exchange& exchange) {
  exchange.respond({.type = "text/plain; version=0.0.4; charset=utf-8",
                    .body = service.metrics().text(service.engine().stats(), listener.connections(),
                                                   trouble().empty())});
}

const Route& Server::State::find_route(const HttpRequest& request) const {
  std::set<std::string> methods;
  for (const Route& route : routes()) {
    if (route.path != request.path) continue;
    if (route.method == request.method) return route;
    methods.insert(std::string(route.method));
  }
  if (methods.empty()) throw ApiError(404, "There is no such path.", {}, "unknown_path");
  throw ApiError(405, concat("This path takes ", *methods.begin(), " only."), {}, "method");
}

void Server::State::refuse(Exchange& exchange, const std::exception_ptr& error) {
  ApiError told = to_api_error(error);
  if (told.status() == 500) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& cause) {
      log_error(concat("[serve] ", exchange.request().id, ": ", cause.what()));
    }
  }
  if (told.retry_after_s > 0) told.retry_after_s = service.retry_after_s();
  service.metrics().note_rejected(rejection(told.status()));
  exchange.respond(told.response());
}

// On the thread of the listener: looks at the head, and leaves the rest to the workers.
void Server::State::handle(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  try {
    exchange->set_fields(access.cors_fields(request));
    if (request.method == "OPTIONS") return exchange->respond({.status = 204, .body = {}});
    const bool is_get = request.method == "GET" || request.method == "HEAD";
    if (is_get && (is_health(request.path) || request.path == "/livez")) {
      return respond_health(*exchange);
    }
    if (is_get && request.path == "/") return respond_page(*exchange);
    const std::uint64_t salt = access.check(request);
    if (is_get && request.path == kMetrics) return respond_metrics(*exchange);
    find_route(request);
    check_type(request);
    if (!is_ready) {
      ApiError error(503, "The server is about to end.");
      error.retry_after_s = 1;
      throw error;
    }
    service.workers().post([this, exchange, salt] { answer(exchange, salt); });
  } catch (...) {
    refuse(*exchange, std::current_exception());
  }
}

void Server::State::answer(const std::shared_ptr<Exchange>& exchange, std::uint64_t salt) {
  if (exchange->is_closed()) return;
  try {
    find_route(exchange->request()).handle(service, exchange, salt);
  } catch (...) {
    refuse(*exchange, std::current_exception());
  }
}

void Server::State::watch_steps() {
  const infer::EngineStats stats = service.engine().stats();
  const bool is_stalled = stats.running > 0 && stats.steps == last_steps;
  stalled_s = is_stalled ? stalled_s + 1 : 0;
  last_steps = stats.steps;
}

void Server::State::tick() {
  std::unique_lock lock(tick_mutex);
  while (!ticked.wait_for(lock, std::chrono::seconds(1), [this] { return is_ending; })) {
    lock.unlock();
    watch_steps();
    for (const auto& generation : service.open_generations()) generation->ping(kSilenceS);
    lock.lock();
  }
}

Server::Server(const ServerOptions& options, ServedModel model, const Clock& clock)
    : state_(std::make_unique<State>(options, std::move(model), clock)) {}

Server::~Server() { stop(); }

int Server::port() const { return state_->listener.port(); }

void Server::on_step_end() { state_->service.on_step_end(); }

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
  const auto wait_for_end = [&](double seconds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!state.service.open_generations().empty() &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  wait_for_end(state.options.drain_s);
  for (const auto& generation : state.service.open_generations()) generation->cancel();
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
