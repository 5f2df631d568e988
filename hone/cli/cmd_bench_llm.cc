// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_llm.h"
#include "hone/cli/bench_verb.h"
#include "hone/cli/weight_options.h"

namespace hone::cli {

void add_bench_llm(CLI::App& bench, Context& context) {
  auto options = std::make_shared<bench::BenchLlmOptions>();
  options->cache = bench::default_bench_cache();
  auto weights = std::make_shared<WeightChoice>();
  CLI::App* verb =
      add_bench_verb(bench, context, "llm", "Measure prefill and decode of language models",
                     [&context, options, weights](bench::BenchRun& run, Measurer&) {
                       options->weights = weights->options();
                       bench::bench_llm(*options, run, context.executor());
                     });
  auto* work = verb->add_option_group("work", "Exactly one of these options");
  work->add_option("--model", options->model, "Model file")->envname("HONE_MODEL");
  work->add_option("--shape", options->shapes,
                   "Shape of a model with random weights: llama-1b, llama-160m")
      ->delimiter(',')
      ->envname("HONE_SHAPE");
  work->require_option(1);
  verb->add_option("--dtype", options->dtypes, "Type of the weights with --shape: q8_0, q4_0")
      ->delimiter(',')
      ->envname("HONE_DTYPE")
      ->capture_default_str();
  verb->add_option("--pp", options->prompts, "Numbers of prompt tokens, each measured as a prefill")
      ->delimiter(',')
      ->envname("HONE_PP")
      ->capture_default_str();
  verb->add_option("--tg", options->generate,
                   "Numbers of generated tokens, each measured as a decode")
      ->delimiter(',')
      ->envname("HONE_TG")
      ->capture_default_str();
  verb->add_option("--depth", options->depths, "Number of tokens in the cache before")
      ->delimiter(',')
      ->envname("HONE_DEPTH")
      ->capture_default_str();
  add_weight_options(*verb, *weights);
  verb->add_option("--against", options->against, "Peers to compare to: llama_cpp")
      ->delimiter(',')
      ->envname("HONE_AGAINST");
}

}  // namespace hone::cli
