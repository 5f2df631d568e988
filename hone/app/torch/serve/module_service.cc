// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/serve/module_service.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "hone/app/torch/serve/infer_request.h"
#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/server/api/api_error.h"
#include "hone/server/api/fields.h"
#include "hone/server/api/json_text.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/serve/script_file.h"

namespace hone::app {
namespace {

using server::ApiError;
using server::Exchange;

constexpr Index kMostStalledS = 60;  // then the service says that it is in trouble
constexpr double kMostRetryS = 120;

ApiError refused(BatchRefusal refusal) {
  const bool is_full = refusal == BatchRefusal::QueueFull;
  return server::passing_error(
      429, is_full ? "Too many inputs wait." : "The answer would take too long.",
      std::string(name_of(refusal)));
}

// What a client hears of an error of the model. LibTorch does not tell a wrong input from a model
// that cannot work.
ApiError input_error(const std::exception_ptr& error, const std::string& path) {
  try {
    std::rethrow_exception(error);
  } catch (const nn::InputRefused& refusal) {
    return refused(refusal.refusal());
  } catch (const Error& own) {
    if (own.category() == ErrorCategory::Cancelled) return server::ending_error();
    return {500, concat("The model's output is wrong: ", own.what()), {}, "model_error"};
  } catch (const std::exception& problem) {
    if (memory::is_out_of_memory(error)) {
      return server::to_api_error(std::make_exception_ptr(std::bad_alloc()));
    }
    return {400, concat(path, ": the model cannot compute it: ", nn::script_problem(problem)), path,
            "invalid_input"};
  }
}

const std::vector<double>& batch_sizes() {
  static const std::vector<double> bounds = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  return bounds;
}

}  // namespace

// A request, whose inputs end one by one.
struct ModuleService::Job {
  std::shared_ptr<Exchange> exchange;
  InferRequest request;
  std::mutex mutex;
  std::vector<nn::ModuleResult> results;
  std::vector<RequestId> ids;  // of inputs that were taken
  bool is_refused = false;     // by the queue; what follows says nothing of the inputs
  std::exception_ptr error;    // of the first input that failed
  std::size_t failed = 0;      // its index
  std::size_t left = 0;
};

ModuleService::ModuleService(ServedModule module, std::string id,
                             const nn::ModuleServerOptions& options, const Clock& clock)
    : module_(std::move(module)),
      id_(std::move(id)),
      created_(std::time(nullptr)),
      options_(options),
      routes_({{"GET", "/v1/models",
                [this](const std::shared_ptr<Exchange>& e, std::uint64_t) { get_models(*e); }},
               {"GET", "/v1/models/",
                [this](const std::shared_ptr<Exchange>& e, std::uint64_t) { get_model(*e); }},
               {"POST", "/v1/infer",
                [this](const std::shared_ptr<Exchange>& e, std::uint64_t) { post_infer(e); },
                /*is_open=*/false, /*takes_images=*/module_.read_image != nullptr}}),
      latency_(server::short_times()),
      batch_(batch_sizes()),
      server_(module_.module, options, clock) {}

ModuleService::~ModuleService() {
  server_.shutdown();
  writer_.end();  // its last answers ask for the counters
}

Json ModuleService::model_json() const {
  return {{"id", id_},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "hone"},
          {"kind", module_.kind},
          {"input_shape", module_.shape.empty() ? Json() : Json(module_.shape)},
          {"classes", module_.classes}};
}

void ModuleService::get_models(Exchange& exchange) const {
  server::respond_json(exchange, {{"object", "list"}, {"data", Json::array({model_json()})}});
}

void ModuleService::get_model(Exchange& exchange) const {
  server::check_model_path(exchange.request().path, id_);
  server::respond_json(exchange, model_json());
}

void ModuleService::post_infer(const std::shared_ptr<Exchange>& exchange) {
  auto job = std::make_shared<Job>();
  job->exchange = exchange;
  job->request = read_infer_request(exchange->request(), module_, id_);
  const std::size_t count = job->request.inputs.size();
  if (static_cast<Index>(count) > options_.max_queue) {
    throw ApiError(400,
                   concat(job->request.field, ": expected at most ", options_.max_queue,
                          ", as many as may wait, got ", count),
                   job->request.field);
  }
  if (server_.counters().waiting + static_cast<Index>(count) > options_.max_queue) {
    refused_whole_ += static_cast<Index>(count);
    throw refused(BatchRefusal::QueueFull);
  }
  job->results.resize(count);
  job->left = count;
  job->ids.reserve(count);
  ++open_;
  for (std::size_t i = 0; i < count; ++i) {
    try {
      job->ids.push_back(
          server_.submit(std::move(job->request.inputs[i]),
                         [this, job, i](nn::ModuleResult result, const std::exception_ptr& error) {
                           finish(job, i, std::move(result), error);
                         }));
    } catch (...) {
      {
        const std::scoped_lock lock(job->mutex);
        job->is_refused = true;
        job->error = std::current_exception();
      }
      // The rest is not tried, and what waits is not needed.
      for (; i < count; ++i) finish(job, i, {}, std::current_exception());
      server_.cancel(job->ids);
      return;
    }
  }
  exchange->on_close([this, ids = job->ids] { server_.cancel(ids); });
}

void ModuleService::finish(const std::shared_ptr<Job>& job, std::size_t index,
                           nn::ModuleResult result, const std::exception_ptr& error) {
  const std::scoped_lock lock(job->mutex);
  if (!error) {
    latency_.observe(1e-3 * result.latency_ms);
    batch_.observe(static_cast<double>(result.batch));
    job->results[index] = std::move(result);
  } else if (!job->error || (index < job->failed && !job->is_refused)) {
    job->error = error;
    job->failed = index;
  }
  if (--job->left > 0) return;
  writer_.post([this, job] {
    respond(*job);
    --open_;
  });
}

void ModuleService::respond(Job& job) {
  const std::scoped_lock lock(job.mutex);
  Exchange& exchange = *job.exchange;
  try {
    const std::string path = concat(job.request.field, "[", job.failed, "]");
    if (job.error) throw input_error(job.error, path);
    Json results = Json::array();
    for (const nn::ModuleResult& result : job.results) {
      results.push_back(answer_json(job.request, module_, result));
    }
    const Json answer = {{"object", "inference"}, {"model", id_}, {"results", std::move(results)}};
    server::respond_json(exchange, answer, job.request.ignored);
  } catch (const std::exception& error) {
    ApiError told = server::to_api_error(std::current_exception());
    if (told.status() == 500) {
      log_error(concat("[serve] ", exchange.request().id, ": ", error.what()));
    }
    if (told.retry_after_s > 0) told.retry_after_s = retry_after_s();
    exchange.respond(told.response());
  }
}

std::string ModuleService::trouble() const {
  const Index stalled = stalled_s_;
  if (stalled < kMostStalledS) return {};
  return concat("No input has ended for ", stalled, " s.");
}

void ModuleService::tick() {
  const BatcherCounters counters = server_.counters();
  const Index done = counters.finished + counters.failed;
  stalled_s_ = counters.running > 0 && done == last_done_ ? stalled_s_ + 1 : Index{0};
  rate_ = 0.5 * (rate_ + static_cast<double>(done - last_done_));
  last_done_ = done;
}

int ModuleService::retry_after_s() const {
  const double waiting = static_cast<double>(server_.counters().waiting);
  const double rate = rate_;
  if (rate <= 0) return stalled_s_ > 1 ? static_cast<int>(kMostRetryS) : 1;
  return static_cast<int>(std::clamp(std::ceil(waiting / rate), 1.0, kMostRetryS));
}

void ModuleService::write_metrics(server::MetricsText& out) const {
  const BatcherCounters counters = server_.counters();
  const Index refused_whole = refused_whole_;
  out.gauge("hone_inputs_running", "Inputs that the model works on", counters.running);
  out.gauge("hone_inputs_waiting", "Inputs that wait for a batch", counters.waiting);
  out.counter("hone_inputs_submitted_total", "Inputs that came",
              counters.submitted + refused_whole);
  out.counter("hone_inputs_finished_total", "Inputs with a result", counters.finished);
  out.counter("hone_inputs_failed_total", "Inputs that the model could not compute",
              counters.failed);
  out.counter("hone_inputs_refused_total", "Inputs that found no room or would have taken too long",
              counters.refused + refused_whole);
  out.counter("hone_inputs_cancelled_total", "Inputs that were cancelled", counters.cancelled);
  latency_.write(out, "hone_input_latency_seconds", "From the input to its result");
  batch_.write(out, "hone_input_batch_size", "Inputs that ran together, of each input");
}

}  // namespace hone::app
