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
  std::filesystem::path model;      // a model file; if empty, `shapes`
  std::vector<std::string> shapes;  // synthetic models: llama-1b, … (synthetic_model.h)
  std::vector<std::string> dtypes = {"q4_0"};  // types of the synthetic models
  std::vector<Index> prompts = {512};          // tokens of a prefill
  std::vector<Index> generate = {64};          // tokens of a decode, after each depth
  std::vector<Index> depths = {0};             // tokens already in the cache
  std::vector<Index> prefixes;                 // lengths of shared prefixes (prefix_reuse.h)
  std::vector<Index> beside;                   // prompt lengths beside decodes (prefill_stall.h)
  infer::KvDtype kv = infer::KvDtype::Float16;
  infer::Activations activations = infer::Activations::Int8;
  std::vector<Index> batches = {1};   // sequences that decode together
  bool score = false;                 // also score the prompts, as `hone eval` does
  bool sampled = false;               // decode also at temperature 1
  std::string json_schema;            // decode also under this schema; empty: do not
  std::vector<std::string> against;   // llama_cpp, ik_llama_cpp
  std::filesystem::path cache;        // folder of synthetic models; empty: default_bench_cache()
  infer::WeightOptions weights = {};  // for hone; peers read the file as it is
};

// Measures prefill and decode rates, "llama-1b/q4_0/pp512" and "llama-1b/q4_0/tg64@512". Peers run
// in child processes on the same file with the same number of threads, interleaved in one run. hone
// samples greedily, and peers do not sample. Tokenization is excluded. Before each sample, both
// sides rest for 300 ms, because idle peers spin.
//
// A decode has a contestant "hone x8" for each batch, in which each sequence has its own prompt.
// "hone sampled" draws at temperature 1, "hone top_p" also uses top_p = 0.95, and "hone schema"
// draws at temperature 1 among the tokens that the schema allows. Random weights spread the
// probability over most of the vocabulary, so top-p does more work than for a real text. "hone
// score" of a prefill reads as many tokens and scores the token after each of them.
//
// Quotients compare the tokens per second of several sequences with those of one, the time of a
// sampled token with the time of a greedy one, and the tokens per second of scores with those of
// their prefill.
//
// Rows have tokens_per_s, isa, kernel, threads and kv. Decode rows of hone also have share_of_roof:
// infer::decode_bytes() per second, over the read bandwidth that the same threads reach immediately
// before and after each sample. The prompt is in the cache. If the last-level cache can store a
// good part of the weights, rows have no_memory_share instead.
//
// Throws Error{InvalidArgument} for an unknown shape, dtype or peer.
void bench_llm(const BenchLlmOptions& options, BenchRun& run, Executor& executor);

// A model on disk and its name in rows.
struct BenchModel {
  std::string name;  // "llama-1b/q4_0"
  std::filesystem::path file;
};
// The model of the options, or each shape with each type. Writes synthetic models that do not exist
// yet. Throws what bench_llm() throws.
std::vector<BenchModel> bench_models(const BenchLlmOptions& options);

// $HONE_CACHE, else $XDG_CACHE_HOME/hone, else ~/.cache/hone, else hone-cache in the folder of
// temporary files.
std::filesystem::path default_bench_cache();

}  // namespace hone::bench
