// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_llm.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "hone/bench/peer_process.h"
#include "hone/bench/synthetic_model.h"
#include "hone/core/check.h"
#include "hone/core/cpu_info.h"
#include "hone/core/names.h"
#include "hone/core/philox.h"
#include "hone/infer/engine.h"

namespace hone::bench {
namespace {

using infer::Engine;
using infer::TokenId;

constexpr auto kRestBetweenRuns = std::chrono::milliseconds(300);

// One model on disk and what its rows are called.
struct Subject {
  std::string name;  // "llama-1b/q4_0"
  std::filesystem::path file;
};

// One unit of work: prefill of `prompt` tokens, or decode of `tokens` tokens after `depth`.
struct Work {
  bool is_prefill = false;
  Index tokens = 0, depth = 0;

  // Tokens in the cache when the clock starts: nothing can be decoded after no token.
  Index start() const { return is_prefill ? 0 : std::max<Index>(depth, 1); }
  std::string name() const {
    return is_prefill ? concat("pp", tokens) : concat("tg", tokens, "@", depth);
  }
};

class CountingSink final : public infer::EventSink {
 public:
  bool try_push(infer::Event&& event) noexcept override {
    if (event.token) ++tokens;
    finished = finished || event.finished.has_value();
    if (event.finished == infer::FinishReason::Failed) error = std::move(event.error);
    return true;
  }
  Index tokens = 0;
  bool finished = false;
  std::string error;
};

// Our side: prepare() brings the engine to the state where timing starts, and run() is timed.
class HoneSide {
 public:
  HoneSide(Engine& engine, Work work) : engine_(engine), work_(work) {}

  void prepare() {
    std::this_thread::sleep_for(kRestBetweenRuns);
    if (work_.is_prefill) return;
    submit(work_.start(), work_.tokens + 1);
    while (sink_->tokens < 1 && !sink_->finished) engine_.step();  // the prompt's own token
  }
  void run() {
    if (work_.is_prefill) submit(work_.tokens, 1);
    while (!sink_->finished) engine_.step();
    if (!sink_->error.empty()) fail(ErrorCategory::Internal, "bench llm", "a run", sink_->error);
  }

 private:
  void submit(Index prompt, Index tokens) {
    infer::Request request;
    PhiloxStream random(7);
    const auto vocab = static_cast<std::uint32_t>(engine_.info().architecture.vocab_size);
    for (Index i = 0; i < prompt; ++i) {
      request.tokens.push_back(static_cast<TokenId>(random.below(vocab)));
    }
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    request.max_tokens = tokens;
    sink_ = std::make_shared<CountingSink>();
    engine_.submit(std::move(request), sink_);
  }

  Engine& engine_;
  Work work_;
  std::shared_ptr<CountingSink> sink_;
};

std::unique_ptr<PeerProcess> start_llama_cpp(const Subject& subject, Index context, int threads) {
  const auto python = peer_python(), script = peer_script("llama_cpp_bench.py");
  if (python.empty() || script.empty()) return nullptr;
  return PeerProcess::try_start({python.string(), script.string(), "--model", subject.file.string(),
                                 "--threads", concat(threads), "--ctx", concat(context)});
}

Contestant peer_contestant(PeerProcess& peer, const std::string& name, const Work& work) {
  const Json question{{"op", work.is_prefill ? "prefill" : "decode"}, {"tokens", work.tokens}};
  const Json place{{"op", "place"}, {"depth", work.start()}};
  return {.name = name,
          .run = [&peer, question] { peer.ask(question); },
          .prepare =
              [&peer, place] {
                std::this_thread::sleep_for(kRestBetweenRuns);
                peer.ask(place);
              }};
}

std::vector<Work> list_work(const BenchLlmOptions& options) {
  std::vector<Work> works;
  for (const Index tokens : options.prompts)
    works.push_back({.is_prefill = true, .tokens = tokens});
  for (const Index tokens : options.generate) {
    for (const Index depth : options.depths) works.push_back({.tokens = tokens, .depth = depth});
  }
  for (const Work& work : works) {
    HONE_CHECK(work.tokens > 0 && work.depth >= 0, "bench llm",
               "positive token counts and depths of at least 0", work.name());
  }
  return works;
}

std::vector<Subject> list_subjects(const BenchLlmOptions& options) {
  if (!options.model.empty())
    return {{escape_controls(options.model.stem().string()), options.model}};
  HONE_CHECK(!options.shapes.empty(), "bench llm", "--model or --shape", "neither");
  std::vector<Subject> subjects;
  const auto folder = options.cache.empty() ? default_bench_cache() : options.cache;
  for (const std::string& shape : options.shapes) {
    for (const std::string& dtype : options.dtypes) {
      subjects.push_back({concat(shape, "/", dtype),
                          synthetic_model(shape, model_io::parse_store_type(dtype), folder)});
    }
  }
  return subjects;
}

Json describe(const infer::ModelInfo& info) {
  return {{"isa", info.isa}, {"kernel", info.kernel}, {"threads", info.threads}};
}

BenchCase make_case(const Subject& subject, const Work& work, const infer::ModelInfo& info,
                    const kernels::MemoryProbe& memory) {
  BenchCase result;
  result.name = concat(subject.name, "/", work.name());
  result.tokens = static_cast<double>(work.tokens);
  if (work.is_prefill) return result;
  result.bytes = infer::decode_bytes(info, work.start(), work.tokens);
  result.probe_around = true;
  result.no_memory_share =
      kernels::why_no_memory_share(info.weight_bytes, cpu_info().last_cache_bytes);
  if (result.no_memory_share.empty()) result.memory = &memory;
  return result;
}

void bench_subject(const Subject& subject, const std::vector<Work>& works,
                   const BenchLlmOptions& options, const kernels::MemoryProbe& memory,
                   BenchRun& run, Executor& executor) {
  Index context = 0;
  for (const Work& work : works) context = std::max(context, work.tokens + work.depth + 2);
  infer::EngineOptions engine_options;
  engine_options.executor = &executor;
  engine_options.need_tokenizer = false;
  engine_options.context = context;
  engine_options.weights = options.weights;
  const auto engine = Engine::open_or_throw(subject.file, engine_options);
  std::unique_ptr<PeerProcess> peer;
  for (const std::string& name : options.against) {
    HONE_CHECK(name == "llama_cpp", "--against", "llama_cpp", name);
    peer = start_llama_cpp(subject, context, executor.workers());
  }
  for (const Work& work : works) {
    HoneSide side(*engine, work);
    BenchCase bench_case = make_case(subject, work, engine->info(), memory);
    bench_case.contestants.push_back(
        {"hone", [&side] { side.run(); }, [&side] { side.prepare(); }});
    bench_case.ours.push_back(true);
    bench_case.extra.push_back(describe(engine->info()));
    if (peer != nullptr) {
      bench_case.contestants.push_back(peer_contestant(*peer, "llama_cpp", work));
      bench_case.ours.push_back(false);
      bench_case.extra.push_back(peer->greeting());
    } else if (!options.against.empty()) {
      bench_case.absent = options.against;
    }
    run.add(bench_case);
  }
}

}  // namespace

std::filesystem::path default_bench_cache() {
  const auto from = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto chosen = from("HONE_CACHE"); !chosen.empty()) return chosen;
  if (const auto base = from("XDG_CACHE_HOME"); !base.empty()) return base / "hone";
  if (const auto home = from("HOME"); !home.empty()) return home / ".cache/hone";
  return std::filesystem::temp_directory_path() / "hone-cache";
}

void bench_llm(const BenchLlmOptions& options, BenchRun& run, Executor& executor) {
  const std::vector<Work> works = list_work(options);
  const kernels::MemoryProbe memory =
      kernels::make_memory_probe(kernels::MemoryTraffic::Read, executor);
  for (const Subject& subject : list_subjects(options)) {
    bench_subject(subject, works, options, memory, run, executor);
  }
}

}  // namespace hone::bench
