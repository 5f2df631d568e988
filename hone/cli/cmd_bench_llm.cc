// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_llm.h"
#include "hone/cli/bench_verb.h"

namespace hone::cli {

void add_bench_llm(CLI::App& bench, Context& context) {
  auto options = std::make_shared<bench::BenchLlmOptions>();
  options->cache = bench::default_bench_cache();
  CLI::App* verb = add_bench_verb(bench, context, "llm", "Prefill and decode of language models",
                                  [&context, options](bench::BenchRun& run, Measurer&) {
                                    bench::bench_llm(*options, run, context.executor());
                                  });
  auto* work = verb->add_option_group("work", "Exactly one of these");
  work->add_option("--model", options->model, "Model file")->envname("HONE_MODEL");
  work->add_option("--shape", options->shapes, "Random weights of a shape: llama-1b, llama-160m")
      ->delimiter(',')
      ->envname("HONE_SHAPE");
  work->require_option(1);
  verb->add_option("--dtype", options->dtypes, "Weights of a --shape: q8_0, q4_0")
      ->delimiter(',')
      ->envname("HONE_DTYPE")
      ->capture_default_str();
  verb->add_option("--pp", options->prompts, "Prompt tokens, for each a row of prefill")
      ->delimiter(',')
      ->envname("HONE_PP")
      ->capture_default_str();
  verb->add_option("--tg", options->generate, "Generated tokens, for each a row of decode")
      ->delimiter(',')
      ->envname("HONE_TG")
      ->capture_default_str();
  verb->add_option("--depth", options->depths, "Tokens that the cache holds before")
      ->delimiter(',')
      ->envname("HONE_DEPTH")
      ->capture_default_str();
  verb->add_option("--against", options->against, "Peers: llama_cpp")
      ->delimiter(',')
      ->envname("HONE_AGAINST");
}

}  // namespace hone::cli
