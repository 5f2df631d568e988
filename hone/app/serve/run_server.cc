// SPDX-License-Identifier: Apache-2.0
#include "hone/app/serve/run_server.h"

#include <condition_variable>
#include <mutex>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"

namespace hone::app {
namespace {

void write_port(const std::filesystem::path& file, int port) {
  AtomicFile target(file);
  target.write(concat(port, "\n"));
  target.commit();
}

}  // namespace

std::string served_name(const ServeJob& job) {
  if (!job.name.empty()) return job.name;
  const std::filesystem::path path = std::filesystem::absolute(job.model).lexically_normal();
  std::filesystem::path last = path.has_filename() ? path : path.parent_path();
  // A run of `hone train` has its model in model/.
  if (last.filename() == "model" && last.parent_path().has_filename()) last = last.parent_path();
  const std::filesystem::path extension = last.extension();
  const bool is_file = extension == ".gguf" || extension == ".pt";
  return is_file ? last.stem().string() : last.filename().string();
}

void run_server(const ServeJob& job, server::Service& service, const Json& facts) {
  server::Server server(job.server, service);
  server.start();
  if (!job.port_file.empty()) write_port(job.port_file, server.port());
  if (job.on_ready) {
    Json ready = {
        {"host", job.server.listener.host}, {"port", server.port()}, {"model", served_name(job)}};
    ready.update(facts);
    job.on_ready(ready);
  }
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait(lock, job.stop, [] { return false; });
  log_info("ending: running requests may finish");
  server.stop();
}

}  // namespace hone::app
