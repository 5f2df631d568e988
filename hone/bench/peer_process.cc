// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/peer_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"

extern char** environ;

namespace hone::bench {
namespace {

namespace fs = std::filesystem;

// OpenMP's threads spin for milliseconds after a parallel region and would take a core from the
// other process.
constexpr auto kRest = std::chrono::milliseconds(50);

// The source folder when the program still lies in its build folder.
fs::path source_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : self.parent_path().parent_path();
}

fs::path from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? fs::path() : fs::path(value);
}

struct Spawned {
  int pid = -1, input = -1, output = -1;
};

Spawned spawn(const std::vector<std::string>& command) {
  std::array<int, 2> to{}, from{};
  if (::pipe2(to.data(), O_CLOEXEC) != 0) return {};
  if (::pipe2(from.data(), O_CLOEXEC) != 0) {
    ::close(to[0]);
    ::close(to[1]);
    return {};
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = -1;
  const int failure = ::posix_spawnp(&pid, words[0], &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(to[0]);
  ::close(from[1]);
  if (failure != 0) {
    ::close(to[1]);
    ::close(from[0]);
    return {};
  }
  return {pid, to[1], from[0]};
}

}  // namespace

PeerProcess::PeerProcess(int pid, int input, int output)
    : pid_(pid), input_(input), output_(output) {}

std::unique_ptr<PeerProcess> PeerProcess::try_start(const std::vector<std::string>& command) {
  const Spawned spawned = spawn(command);
  if (spawned.pid < 0) {
    log_warning(concat("peer: ", command.front(), " does not start"));
    return nullptr;
  }
  std::unique_ptr<PeerProcess> peer(new PeerProcess(spawned.pid, spawned.input, spawned.output));
  try {
    peer->greeting_ = parse_json(peer->read_line(), "peer");
  } catch (const Error& error) {
    log_warning(concat("peer: ", error.what()));
    return nullptr;
  }
  if (peer->greeting_.value("ready", false)) return peer;
  log_warning(concat("peer: ", peer->greeting_.dump()));
  return nullptr;
}

PeerProcess::~PeerProcess() {
  ::close(input_);
  ::close(output_);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

Json PeerProcess::ask(const Json& question) {
  const std::string line = question.dump() + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t count = ::write(input_, line.data() + sent, line.size() - sent);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(ErrorCategory::Internal, "peer", "to take a question", "a dead process");
    sent += static_cast<std::size_t>(count);
  }
  Json answer = parse_json(read_line(), "peer");
  if (answer.contains("error")) {
    fail(ErrorCategory::Internal, "peer", line, answer["error"].dump());
  }
  return answer;
}

std::string PeerProcess::read_line() {
  for (;;) {
    const std::size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    std::array<char, 4096> bytes;
    const ssize_t count = ::read(output_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(ErrorCategory::Internal, "peer", "an answer", "the end of its output");
    pending_.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

void add_peer(const std::string& name, std::shared_ptr<PeerProcess> peer, BenchCase& bench_case) {
  if (peer == nullptr) {
    bench_case.absent.push_back(name);
    return;
  }
  const auto seconds = std::make_shared<double>(0);
  const auto step = [peer, seconds] {
    *seconds = peer->ask({{"op", "step"}}).at("seconds").get<double>();
    std::this_thread::sleep_for(kRest);
  };
  const auto wake = [peer] {
    std::this_thread::sleep_for(kRest);
    peer->ask({{"op", "wake"}});
  };
  bench_case.contestants.push_back(
      {.name = name, .run = step, .prepare = wake, .own_seconds = [seconds] { return *seconds; }});
  bench_case.ours.push_back(false);
  Json row = peer->greeting();
  row.erase("ready");
  bench_case.extra.push_back(std::move(row));
}

fs::path peer_python() {
  const fs::path chosen = from_environment("HONE_PEER_PYTHON");
  if (!chosen.empty()) return chosen;
  const fs::path own = source_folder() / ".venv-peers/bin/python";
  return fs::exists(own) ? own : fs::path();
}

fs::path peer_script(const std::string& name) {
  const fs::path chosen = from_environment("HONE_PEERS");
  const fs::path script = (chosen.empty() ? source_folder() / "bench/peers" : chosen) / name;
  return fs::exists(script) ? script : fs::path();
}

}  // namespace hone::bench
