// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hone/app/torch/serve/served_module.h"
#include "hone/server/service.h"
#include "hone/server/workers.h"
#include "hone/train/serve/module_server.h"

namespace hone::app {

// Answers for a classifier or a TorchScript file: GET /v1/models and POST /v1/infer. Inputs of all
// requests share batches.
class ModuleService final : public server::Service {
 public:
  // `id` is the model's name for clients.
  ModuleService(ServedModule module, std::string id, const nn::ModuleServerOptions& options,
                const Clock& clock = steady_clock());
  ~ModuleService() override;
  ModuleService(const ModuleService&) = delete;
  ModuleService& operator=(const ModuleService&) = delete;

  const std::vector<server::Route>& routes() const override { return routes_; }
  std::string trouble() const override;
  int retry_after_s() const override;
  void write_metrics(server::MetricsText& out) const override;
  void tick() override;
  void hurry() override { server_.hurry(); }
  bool is_idle() const override { return open_ == 0; }
  void cancel_all() override { server_.cancel_waiting(); }

 private:
  struct Job;
  Json model_json() const;
  void get_models(server::Exchange& exchange) const;
  void get_model(server::Exchange& exchange) const;
  void post_infer(const std::shared_ptr<server::Exchange>& exchange);
  void finish(const std::shared_ptr<Job>& job, std::size_t index, nn::ModuleResult result,
              const std::exception_ptr& error);
  void respond(Job& job);

  const ServedModule module_;
  const std::string id_;
  const std::int64_t created_;
  const nn::ModuleServerOptions options_;
  const std::vector<server::Route> routes_;
  server::Histogram latency_, batch_;
  std::atomic<double> rate_{0};  // inputs that end in a second, recently
  std::atomic<Index> refused_whole_{0};
  std::atomic<Index> open_{0};       // requests that have not been answered
  Index last_done_ = 0;              // of tick()
  std::atomic<Index> stalled_s_{0};  // since an input ended, while some run
  server::Workers writer_{1};
  nn::ModuleServer server_;
};

}  // namespace hone::app
