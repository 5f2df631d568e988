// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hone/server/http/listener.h"
#include "hone/server/service.h"

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

// Serves a model over HTTP. If there are keys, every route needs one but /livez, /readyz, /health,
// /v1/health and the open ones of the service. On a loopback address without keys, requests must
// name a loopback host, so that no page of another site reaches the server through the browser.
class Server {
 public:
  // Binds the address. Throws Error{InvalidArgument} for an address that other machines reach
  // without keys or allow_anonymous, and Error{Io} if it cannot be had.
  Server(const ServerOptions& options, Service& service);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  // Accepts requests until stop().
  void start();
  // Refuses new requests, lets running ones end for drain_s, cancels the rest, and closes all
  // connections.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hone::server
