// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hone/bench/bench_run.h"
#include "hone/core/file/json_io.h"

namespace hone::bench {

// Another program that does the same work in its own process (bench/peers/*.py): one JSON line in,
// one JSON line out.
class PeerProcess {
 public:
  // Starts `command`; the peer's first line says {"ready": true, …}. Returns null, with the reason
  // in the log, if it cannot be started or is not ready: a missing peer is not an error.
  static std::unique_ptr<PeerProcess> try_start(const std::vector<std::string>& command);
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess();  // closes its input and waits for it to end

  // The peer's description of itself.
  const Json& greeting() const { return greeting_; }
  // Throws Error{Internal} if the peer has died or answers {"error": …}.
  Json ask(const Json& question);

 private:
  PeerProcess(int pid, int input, int output);
  std::string read_line();

  int pid_, input_, output_;
  std::string pending_;
  Json greeting_;
};

// Adds a peer to the case, as absent if it is null. The peer answers {"op": "step"} with the
// seconds of the work by its own clock, so that communication between the processes does not count.
// {"op": "wake"} keeps its threads from sleeping. Its row contains its greeting.
void add_peer(const std::string& name, std::shared_ptr<PeerProcess> peer, BenchCase& bench_case);

// The interpreter, and a script of bench/peers: HONE_PEER_PYTHON (else python3 of .venv-peers next
// to the sources) and HONE_PEERS (else bench/peers next to the build folder). Empty if not found.
std::filesystem::path peer_python();
std::filesystem::path peer_script(const std::string& name);

}  // namespace hone::bench
