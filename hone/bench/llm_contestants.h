// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hone/bench/bench_run.h"
#include "hone/bench/llm_driver.h"
#include "hone/bench/peer_process.h"
#include "hone/infer/engine.h"

namespace hone::bench {

// One unit of work: prefill of a prompt of `tokens` tokens, or decode of `tokens` tokens of each
// sequence after `depth` tokens.
struct LlmWork {
  bool is_prefill = false;
  Index tokens = 0, depth = 0;

  // Tokens in the cache when the clock starts. At least 1 for a decode, which must follow a token.
  Index start() const;
  std::string name() const;  // "pp512", "tg64@512"
};

// How tokens are chosen, and how many sequences run together.
struct LlmMode {
  std::string name{};  // decode: "", "sampled", "top_p", "schema"; prefill: "", "score"
  infer::SamplingParams sampling{};
  std::string json_schema{};
  Index sequences = 1;

  // "hone", "hone sampled x8"
  std::string label(const std::string& program) const;
};

// hone's side: prepare() brings the engine to the state in which timing starts, and run() is timed.
// The sequences have different prompts and all decode in every timed step. Throws the error of a
// failed run, and Error{InvalidArgument} if a text ends early.
class HoneSide {
 public:
  HoneSide(infer::Engine& engine, LlmWork work, LlmMode mode, std::stop_token stop = {});
  void prepare();
  void run();

 private:
  void submit(Index sequence, Index prompt, Index tokens);
  void finish();

  LlmDriver driver_;
  LlmWork work_;
  LlmMode mode_;
  std::vector<LlmRun> runs_;
  std::uint64_t samples_ = 0;
};

// Another program that runs the same file.
struct LlmPeer {
  std::string name;                        // "llama_cpp"
  std::unique_ptr<PeerProcess> process{};  // null if it is absent
  bool has_batches = true;                 // whether sequences can decode together
  bool has_own_clock = false;              // whether its answers contain the seconds
};

// "llama_cpp": the package of bench/peers/llama_cpp_bench.py. "ik_llama_cpp": the program that
// HONE_IK_LLAMA_BENCH names. `context` is the number of tokens of one sequence. Throws
// Error{InvalidArgument} for other names.
LlmPeer start_llm_peer(const std::string& name, const std::filesystem::path& model, Index context,
                       Index sequences, int threads);
Contestant peer_contestant(LlmPeer& peer, const LlmWork& work, const LlmMode& mode);

}  // namespace hone::bench
