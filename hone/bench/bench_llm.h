// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hone/bench/bench_run.h"
#include "hone/core/executor.h"
#include "hone/infer/weight_options.h"

namespace hone::bench {

struct BenchLlmOptions {
  std::filesystem::path model;      // a model file, or
  std::vector<std::string> shapes;  // synthetic ones: llama-1b, llama-160m (synthetic_model.h)
  std::vector<std::string> dtypes = {"q4_0"};  // of the synthetic ones
  std::vector<Index> prompts = {512};          // prefill of this many tokens
  std::vector<Index> generate = {64};          // decode of this many tokens, after each depth
  std::vector<Index> depths = {0};             // tokens already in the cache
  std::vector<std::string> against;            // llama_cpp
  std::filesystem::path cache;                 // where synthetic models are kept
  infer::WeightOptions weights = {};           // of hone; peers read the file as it is
};

// Prefill and decode rates, "llama-1b/q4_0/pp512" and "llama-1b/q4_0/tg64@512", with peers in child
// processes on the same file and thread count, interleaved in one run. Sampling is greedy on our
// side and absent on theirs; tokenization is excluded. Before each sample both sides rest for
// 300 ms, because idle peers spin. Rows carry tokens_per_s, isa, kernel, threads. Our decode rows
// carry share_of_roof: the bytes of infer::decode_bytes() per second, over the read bandwidth that
// the same threads reach immediately before and after each sample, the prompt being in the cache;
// or no_memory_share, where the last-level cache holds a good part of the weights.
// Error{InvalidArgument} for an unknown shape, dtype or peer.
void bench_llm(const BenchLlmOptions& options, BenchRun& run, Executor& executor);

// $HONE_CACHE, else $XDG_CACHE_HOME/hone, else ~/.cache/hone.
std::filesystem::path default_bench_cache();

}  // namespace hone::bench
