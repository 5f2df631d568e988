// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hone/bench/bench_run.h"
#include "hone/core/thread/executor.h"
#include "hone/infer/engine.h"
#include "hone/infer/weight_options.h"

namespace hone::bench {

struct BenchLlmOptions {
  std::filesystem::path model;                 // a model file, or
  std::vector<std::string> shapes;             // synthetic ones: llama-1b, … (synthetic_model.h)
  std::vector<std::string> dtypes = {"q4_0"};  // of the synthetic ones
  std::vector<Index> prompts = {512};          // prefill of this many tokens
  std::vector<Index> generate = {64};          // decode of this many tokens, after each depth
  std::vector<Index> depths = {0};             // tokens already in the cache
  std::vector<Index> prefixes;                 // shared by prompts; see prefix_reuse.h
  std::vector<Index> beside;                   // prompts beside decodes; see prefill_stall.h
  infer::KvDtype kv = infer::KvDtype::Float16;
  infer::Activations activations = infer::Activations::Int8;
  std::vector<Index> batches = {1};   // sequences that decode together
  bool score = false;                 // also score the prompts, as `hone eval` does
  bool sampled = false;               // decode also at temperature 1
  std::string json_schema;            // decode also under this schema; empty: do not
  std::vector<std::string> against;   // llama_cpp, ik_llama_cpp
  std::filesystem::path cache;        // where synthetic models are kept
  infer::WeightOptions weights = {};  // of hone; peers read the file as it is
};

// Prefill and decode rates, "llama-1b/q4_0/pp512" and "llama-1b/q4_0/tg64@512", with peers in child
// processes on the same file and thread count, interleaved in one run. Sampling is greedy on our
// side and absent on theirs; tokenization is excluded. A decode has contestants "hone x8" for each
// batch, each sequence with its own prompt; "hone sampled" draws at temperature 1 and "hone top_p"
// also with top_p = 0.95, "hone schema" draws at temperature 1 among the tokens that the schema
// allows. "hone score" of a prefill reads as many tokens and scores the one behind each of them.
// Quotients give the tokens per second of several sequences over those of one, and the time
// of a drawn token over that of a greedy one, and the tokens per second of scores over those of
// their prefill. Random weights spread the probability over most of
// the vocabulary, for which top-p does more work than for a text. Before each sample both sides
// rest for 300 ms, because idle peers spin. Rows carry tokens_per_s, isa, kernel, threads, kv. Our
// decode rows carry share_of_roof: the bytes of infer::decode_bytes() per second, over the read
// bandwidth that the same threads reach immediately before and after each sample, the prompt being
// in the cache; or no_memory_share, where the last-level cache holds a good part of the weights.
// Error{InvalidArgument} for an unknown shape, dtype or peer.
void bench_llm(const BenchLlmOptions& options, BenchRun& run, Executor& executor);

// One model on disk and what its rows are called.
struct BenchModel {
  std::string name;  // "llama-1b/q4_0"
  std::filesystem::path file;
};
// The model of the options, or each shape with each type. Synthetic ones are written if they are
// not there. Errors as bench_llm().
std::vector<BenchModel> bench_models(const BenchLlmOptions& options);

// $HONE_CACHE, else $XDG_CACHE_HOME/hone, else ~/.cache/hone.
std::filesystem::path default_bench_cache();

}  // namespace hone::bench
