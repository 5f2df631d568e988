// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_llm.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "hone/bench/llm_contestants.h"
#include "hone/bench/prefill_stall.h"
#include "hone/bench/prefix_reuse.h"
#include "hone/bench/synthetic_model.h"
#include "hone/core/check.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/names.h"

namespace hone::bench {
namespace {

using infer::Engine;

constexpr Index kMaxSequences = 64;

std::vector<LlmWork> list_work(const BenchLlmOptions& options) {
  std::vector<LlmWork> works;
  for (const Index tokens : options.prompts)
    works.push_back({.is_prefill = true, .tokens = tokens});
  for (const Index tokens : options.generate) {
    for (const Index depth : options.depths) works.push_back({.tokens = tokens, .depth = depth});
  }
  for (const LlmWork& work : works) {
    HONE_CHECK(work.tokens > 0 && work.depth >= 0, "bench llm",
               "positive token counts and depths of at least 0", work.name());
  }
  return works;
}

Json describe(const infer::ModelInfo& info, infer::KvDtype kv) {
  return {{"isa", info.isa},
          {"kernel", info.kernel},
          {"threads", info.threads},
          {"kv", infer::name_of(kv)}};
}

// Greedy, then sampled, then masked, each with every number of sequences.
std::vector<LlmMode> list_modes(const BenchLlmOptions& options) {
  const infer::SamplingParams greedy{.temperature = 0};
  std::vector<LlmMode> kinds{{.sampling = greedy}};
  if (options.sampled) {
    kinds.push_back({.name = "sampled"});
    kinds.push_back({.name = "top_p", .sampling = {.top_p = 0.95f}});
  }
  if (!options.json_schema.empty()) {
    kinds.push_back({.name = "schema", .json_schema = options.json_schema});
  }
  HONE_CHECK(!options.batches.empty(), "--batch", "numbers of sequences", "none");
  std::vector<LlmMode> modes;
  for (const LlmMode& kind : kinds) {
    for (const Index sequences : options.batches) {
      HONE_CHECK(sequences >= 1 && sequences <= kMaxSequences, "--batch",
                 concat("1 to ", kMaxSequences, " sequences"), sequences);
      modes.push_back(kind);
      modes.back().sequences = sequences;
    }
  }
  return modes;
}

// What a run computes: tokens, and the bytes of one pass over the weights for each step, whatever
// the number of sequences, and of the keys and values of each.
BenchCase::Amount amount_of(const LlmWork& work, const LlmMode& mode,
                            const infer::ModelInfo& info) {
  const auto sequences = static_cast<double>(mode.sequences);
  BenchCase::Amount amount{.tokens = sequences * static_cast<double>(work.tokens)};
  if (work.is_prefill) return amount;
  const double weights = static_cast<double>(work.tokens) * static_cast<double>(info.weight_bytes);
  const double alone = infer::decode_bytes(info, work.start(), work.tokens);
  amount.bytes = weights + sequences * (alone - weights);
  return amount;
}

// Several sequences beside one of the same kind, in tokens per second, and draws and masks beside
// the largest logit, in time.
std::vector<Quotient> quotients_of(const std::vector<LlmMode>& modes) {
  std::vector<Quotient> quotients;
  for (std::size_t i = 0; i < modes.size(); ++i) {
    for (std::size_t j = 0; j < modes.size(); ++j) {
      const LlmMode &one = modes[i], &base = modes[j];
      if (one.name == base.name && one.sequences > 1 && base.sequences == 1) {
        quotients.push_back({.name = concat(one.label("hone"), " / x1, tokens/s"),
                             .of = j,
                             .over = i,
                             .factor = static_cast<double>(one.sequences)});
      }
      if (!one.name.empty() && base.name.empty() && one.sequences == base.sequences) {
        quotients.push_back(
            {.name = concat(one.label("hone"), " / greedy, time"), .of = i, .over = j});
      }
    }
  }
  return quotients;
}

BenchCase make_case(const BenchModel& subject, const LlmWork& work, const infer::ModelInfo& info,
                    const kernels::MemoryProbe& memory) {
  BenchCase result;
  result.name = concat(subject.name, "/", work.name());
  if (work.is_prefill) return result;
  result.probe_around = true;
  result.no_memory_share =
      kernels::why_no_memory_share(info.weight_bytes, cpu_info().last_cache_bytes);
  if (result.no_memory_share.empty()) result.memory = &memory;
  return result;
}

// A contestant for each greedy mode, or for one sequence.
void add_peer_modes(LlmPeer& peer, const LlmWork& work, const std::vector<LlmMode>& modes,
                    const infer::ModelInfo& info, BenchCase& bench_case) {
  for (std::size_t i = 0; i < modes.size() && modes[i].name.empty(); ++i) {
    const std::string label = modes[i].label(peer.name);
    if (peer.process == nullptr) {
      bench_case.absent.push_back(label);
    } else if (modes[i].sequences > 1 && !peer.has_batches) {
      bench_case.skipped.emplace_back(label, "its program decodes one sequence");
    } else {
      bench_case.rivalries.push_back({.impl = i, .against = {bench_case.contestants.size()}});
      bench_case.contestants.push_back(peer_contestant(peer, work, modes[i]));
      bench_case.ours.push_back(false);
      bench_case.amounts.push_back(amount_of(work, modes[i], info));
      bench_case.extra.push_back(peer.process->greeting());
    }
  }
}

void bench_work(const BenchModel& subject, const LlmWork& work, const std::vector<LlmMode>& modes,
                const BenchLlmOptions& options, Engine& engine, std::vector<LlmPeer>& peers,
                const kernels::MemoryProbe& memory, BenchRun& run) {
  BenchCase bench_case = make_case(subject, work, engine.info(), memory);
  std::vector<std::unique_ptr<HoneSide>> sides;
  for (const LlmMode& mode : modes) {
    HoneSide* side =
        sides.emplace_back(std::make_unique<HoneSide>(engine, work, mode, run.options().stop))
            .get();
    bench_case.contestants.push_back(
        {mode.label("hone"), [side] { side->run(); }, [side] { side->prepare(); }});
    bench_case.ours.push_back(true);
    bench_case.amounts.push_back(amount_of(work, mode, engine.info()));
    bench_case.extra.push_back(describe(engine.info(), options.kv));
  }
  for (LlmPeer& peer : peers) add_peer_modes(peer, work, modes, engine.info(), bench_case);
  if (!work.is_prefill) bench_case.quotients = quotients_of(modes);
  if (work.is_prefill && modes.size() > 1) {
    bench_case.quotients = {{.name = "hone score / prefill, tokens/s", .of = 0, .over = 1}};
  }
  run.add(bench_case);
}

void bench_subject(const BenchModel& subject, const std::vector<LlmWork>& works,
                   const BenchLlmOptions& options, const kernels::MemoryProbe& memory,
                   BenchRun& run, Executor& executor) {
  Index context = 0;
  for (const LlmWork& work : works) context = std::max(context, work.tokens + work.depth + 2);
  for (const Index prefix : options.prefixes) context = std::max(context, prefix_context(prefix));
  for (const Index prompt : options.beside) context = std::max(context, stall_context(prompt));
  const std::vector<LlmMode> modes = list_modes(options);
  const Index sequences = *std::ranges::max_element(options.batches);
  infer::EngineOptions engine_options;
  engine_options.executor = &executor;
  engine_options.need_tokenizer = !options.json_schema.empty();
  engine_options.context = context;
  engine_options.kv = options.kv;
  engine_options.activations = options.activations;
  engine_options.max_sequences = std::max<Index>(sequences + (options.beside.empty() ? 0 : 1),
                                                 options.prefixes.empty() ? 1 : 2);
  // The parts of all prompts that a cache of whole blocks leaves fit into one step.
  engine_options.prefill_chunk = std::max<Index>(engine_options.prefill_chunk, 32 * sequences);
  engine_options.weights = options.weights;
  const auto engine = Engine::open_or_throw(subject.file, engine_options);
  std::vector<LlmPeer> peers;
  for (const std::string& name : options.against) {
    peers.push_back(start_llm_peer(name, subject.file, context, sequences, executor.workers()));
  }
  std::vector<LlmMode> prefill{{.sampling = {.temperature = 0}}};
  if (options.score) prefill.push_back({.name = "score"});
  for (const LlmWork& work : works) {
    bench_work(subject, work, work.is_prefill ? prefill : modes, options, *engine, peers, memory,
               run);
  }
  for (const Index prefix : options.prefixes) {
    bench_prefix_reuse(subject.name, prefix, *engine, run);
  }
  for (const Index prompt : options.beside) {
    bench_prefill_stall(subject.name, prompt, options.batches, *engine, run);
  }
}

}  // namespace

std::vector<BenchModel> bench_models(const BenchLlmOptions& options) {
  if (!options.model.empty())
    return {{escape_controls(options.model.stem().string()), options.model}};
  HONE_CHECK(!options.shapes.empty(), "bench llm", "--model or --shape", "neither");
  std::vector<BenchModel> models;
  const auto folder = options.cache.empty() ? default_bench_cache() : options.cache;
  for (const std::string& shape : options.shapes) {
    for (const std::string& dtype : options.dtypes) {
      models.push_back({concat(shape, "/", dtype), synthetic_model(shape, dtype, folder)});
    }
  }
  return models;
}

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
  const std::vector<LlmWork> works = list_work(options);
  const kernels::MemoryProbe memory =
      kernels::make_memory_probe(kernels::MemoryTraffic::Read, executor);
  for (const BenchModel& subject : bench_models(options)) {
    bench_subject(subject, works, options, memory, run, executor);
  }
}

}  // namespace hone::bench
