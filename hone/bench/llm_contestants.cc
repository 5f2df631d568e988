// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/llm_contestants.h"

#include <cstdlib>
#include <utility>

#include "hone/core/check.h"

namespace hone::bench {
Index LlmWork::start() const { return is_prefill ? 0 : std::max<Index>(depth, 1); }

std::string LlmWork::name() const {
  return is_prefill ? concat("pp", tokens) : concat("tg", tokens, "@", depth);
}

std::string LlmMode::label(const std::string& program) const {
  std::string text = program;
  if (!name.empty()) text += " " + name;
  if (sequences > 1) text += concat(" x", sequences);
  return text;
}

HoneSide::HoneSide(infer::Engine& engine, LlmWork work, LlmMode mode, std::stop_token stop)
    : driver_(engine, std::move(stop)), work_(work), mode_(std::move(mode)) {}

// A decode starts when each sequence has the token that follows its prompt. All get it in the same
// step, because the engine has the prompts' keys and values from the requests before.
void HoneSide::prepare() {
  rest_before_sample();
  ++samples_;
  if (work_.is_prefill) return;
  for (const Index tokens : {Index{1}, work_.tokens + 1}) {
    runs_.clear();
    for (Index i = 0; i < mode_.sequences; ++i) submit(i, work_.start(), tokens);
    if (tokens == 1) finish();
  }
  driver_.wait_for_first_tokens(runs_);
  for (const LlmRun& run : runs_) {
    if (run.sink->tokens.size() == 1) continue;
    fail(ErrorCategory::Resource, "bench llm", "sequences that start together",
         concat(run.sink->tokens.size(), " tokens of one before the first of another"));
  }
}

void HoneSide::run() {
  if (mode_.name == "score") {
    driver_.engine().score(driver_.random_tokens(0, work_.tokens + 1));
    return;
  }
  if (work_.is_prefill) {
    runs_.clear();
    submit(0, work_.tokens, 1);
  }
  finish();
}

void HoneSide::submit(Index sequence, Index prompt, Index tokens) {
  const auto stream = static_cast<std::uint64_t>(sequence);
  infer::Request request = driver_.request(driver_.random_tokens(stream, prompt), tokens);
  // A prompt that is measured is new to the cache each time.
  if (work_.is_prefill) request.salt = samples_;
  request.sampling = mode_.sampling;
  request.json_schema = mode_.json_schema;
  request.ignore_eos = mode_.json_schema.empty();
  runs_.push_back(driver_.submit(std::move(request)));
}

void HoneSide::finish() {
  driver_.wait_for_ends(runs_);
  for (const LlmRun& run : runs_) {
    HONE_REQUIRE(run.sink->finish_reason() == infer::FinishReason::Length, "bench llm",
                 "A text ended before the last token that is measured. A schema for this purpose "
                 "must not let it end.");
  }
}

namespace {

std::unique_ptr<PeerProcess> start(const char* script_name, std::vector<std::string> arguments) {
  const auto python = peer_python(), script = peer_script(script_name);
  if (python.empty() || script.empty()) return nullptr;
  arguments.insert(arguments.begin(), {python.string(), script.string()});
  return PeerProcess::try_start(arguments);
}

}  // namespace

LlmPeer start_llm_peer(const std::string& name, const std::filesystem::path& model, Index context,
                       Index sequences, int threads) {
  const std::vector<std::string> common{"--model", model.string(), "--threads", concat(threads)};
  if (name == "llama_cpp") {
    std::vector<std::string> arguments = common;
    for (const std::string& word :
         {std::string("--ctx"), concat(context), std::string("--sequences"), concat(sequences)}) {
      arguments.push_back(word);
    }
    return {.name = name, .process = start("llama_cpp_bench.py", std::move(arguments))};
  }
  HONE_CHECK(name == "ik_llama_cpp", "--against", "llama_cpp or ik_llama_cpp", name);
  LlmPeer peer{.name = name, .has_batches = false, .has_own_clock = true};
  const char* program = std::getenv("HONE_IK_LLAMA_BENCH");
  if (program == nullptr || *program == '\0') return peer;
  std::vector<std::string> arguments = common;
  arguments.insert(arguments.end(), {"--program", program});
  peer.process = start("ik_llama_bench.py", std::move(arguments));
  return peer;
}

Contestant peer_contestant(LlmPeer& peer, const LlmWork& work, const LlmMode& mode) {
  PeerProcess& process = *peer.process;
  const Json question{{"op", work.is_prefill ? "prefill" : "decode"},
                      {"tokens", work.tokens},
                      {"depth", work.start()},
                      {"sequences", mode.sequences}};
  if (peer.has_own_clock) {
    const auto seconds = std::make_shared<double>(0);
    return {.name = mode.label(peer.name),
            .run = [&process, question,
                    seconds] { *seconds = process.ask(question).at("seconds").get<double>(); },
            .prepare = rest_before_sample,
            .own_seconds = [seconds] { return *seconds; }};
  }
  Json place = question;
  place["op"] = "place";
  return {.name = mode.label(peer.name),
          .run = [&process, question] { process.ask(question); },
          .prepare =
              [&process, place] {
                rest_before_sample();
                process.ask(place);
              }};
}

}  // namespace hone::bench
