// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/bench/bench_run.h"

namespace hone::bench {

struct BenchServeOptions {
  std::vector<std::string> urls{};  // read_server_url(); the first one is compared with the others
  std::string model{}, key{};       // empty: the server's first model, no key
  std::vector<Index> streams = {8};
  Index prompt = 128;             // words of a prompt: about as many tokens
  Index tokens = 128;             // tokens of an answer
  std::vector<Index> prefixes{};  // words of a prefix that all streams share
};

// Measures servers of the OpenAI API from outside, in interleaved rounds. The servers must run; no
// prompt occurs twice.
//   "x8/p128/t128"    the time in which 8 clients at once get their answers. tokens_per_s counts
//                     the tokens of all answers; an answer that ends early counts in proportion.
//   "x8/prefix2048"   the median time to the first token of 8 clients that ask at once with a
//                     common beginning, which no server has seen before.
// A second row of each has, over all rounds: the median and the 99th percentile of the time to the
// first token and of the time between pieces of text, in ms, and the tokens of the prompt by the
// server's count. Throws what read_server_url() and stream_completion() throw.
void bench_serve(const BenchServeOptions& options, BenchRun& run);

}  // namespace hone::bench
