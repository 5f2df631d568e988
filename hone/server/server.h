// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hone/server/api/service.h"
#include "hone/server/http/listener.h"

namespace hone::server {

// A client with a key. Clients are tenants: they share neither cached prefixes nor queues.
struct ApiKey {
  std::string name, key;
};

// Reads one key a line, `name:key` or `key`; empty lines and lines with # in front do not count.
// Throws Error{CorruptFile} that names the line, and Error{NotFound}.
std::vector<ApiKey> read_api_keys(const std::string& file);

struct ServerOptions {
  ListenerOptions listener{};
  std::vector<ApiKey> keys{};               // empty: everybody who reaches the server may ask
  bool allow_anonymous = false;             // no keys on an address that other machines reach
  bool opens_metrics = false;               // GET /metrics needs no key
  std::vector<std::string> cors_origins{};  // pages of these origins may ask; "*": of all
  double drain_s = 30;                      // for running requests, when the server ends
};

// Serves a model over HTTP. Every route but /livez, /readyz, /health and /v1/health needs a key if
// there are keys. On a loopback address without keys, requests must name a loopback host, so that
// no page of another site reaches the server through the browser.
class Server {
 public:
  // Binds the address. The engine must have a tokenizer. Throws Error{InvalidArgument} for an
  // address that other machines reach without keys or allow_anonymous, and Error{Io} if it cannot
  // be had.
  Server(const ServerOptions& options, ServedModel model, const Clock& clock);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  // For EngineOptions::on_step_end.
  void on_step_end();
  // Accepts requests until stop(); the engine must run meanwhile.
  void start();
  // Refuses new requests, lets running ones end for drain_s, cancels the rest, and closes all
  // connections.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hone::server
