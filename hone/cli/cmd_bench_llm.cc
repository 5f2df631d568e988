// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_llm.h"
#include "hone/bench/bench_spec.h"
#include "hone/cli/bench_verb.h"
#include "hone/cli/runtime_options.h"
#include "hone/cli/weight_options.h"

namespace hone::cli {
namespace {

void add_speculation_options(CLI::App& verb, bench::BenchSpecOptions& spec, std::string& depth) {
  verb.add_option("--spec", spec.acceptances,
                  "Measure speculative decoding and plain decoding instead, with drafts that are "
                  "correct with these probabilities")
      ->delimiter(',');
  verb.add_option("--spec-sequences", spec.sequences,
                  "Numbers of sequences that decode together with --spec")
      ->delimiter(',')
      ->capture_default_str();
  verb.add_option("--spec-tokens", spec.tokens, "Number of tokens of each sequence with --spec")
      ->capture_default_str();
  verb.add_option("--spec-k", depth, "Number of drafts per round with --spec, 1 to 16, or auto")
      ->capture_default_str();
}

}  // namespace

void add_bench_llm(CLI::App& bench, Context& context) {
  auto options = std::make_shared<bench::BenchLlmOptions>();
  options->cache = bench::default_bench_cache();
  auto runtime = std::make_shared<RuntimeChoice>();
  auto weights = std::make_shared<WeightChoice>();
  auto spec = std::make_shared<bench::BenchSpecOptions>();
  auto depth = std::make_shared<std::string>("auto");
  CLI::App* verb = add_bench_verb(
      bench, context, "llm", "Measure prefill and decode of language models",
      [&context, options, runtime, weights, spec, depth](bench::BenchRun& run, Measurer&) {
        options->kv = runtime->kv_dtype();
        options->activations = runtime->activations();
        options->weights = weights->options();
        if (spec->acceptances.empty()) {
          bench::bench_llm(*options, run, context.executor());
        } else {
          spec->depth = read_draft_depth(*depth);
          bench::bench_spec(*options, *spec, run, context.executor());
        }
      });
  auto* work = verb->add_option_group("work", "Exactly one of these options");
  work->add_option("--model", options->model, "Model file");
  work->add_option("--shape", options->shapes,
                   "Shape of a model with random weights: llama-1b, llama3-1b, llama-160m")
      ->delimiter(',');
  work->require_option(1);
  verb->add_option("--dtype", options->dtypes,
                   "Type of the weights with --shape: q8_0, q4_0, q4_k, q5_k, q6_k, q4_k_m")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--pp", options->prompts,
                   "Prompt lengths in tokens; the prefill of each is measured")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_flag("--score", options->score,
                 "Also score the next token after each prompt token, as hone eval does");
  verb->add_option("--tg", options->generate,
                   "Numbers of tokens to generate; the decode of each is measured")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--depth", options->depths,
                   "Numbers of tokens in the KV cache before decoding starts")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--prefix", options->prefixes,
                   "Numbers of prompt tokens that requests share; measures the time to the first "
                   "token with and without them in the KV cache")
      ->delimiter(',');
  verb->add_option("--beside-prompt", options->beside,
                   "Lengths of prompts that are prefilled while the sequences of --batch decode; "
                   "measures the time between decoded tokens")
      ->delimiter(',');
  add_runtime_options(*verb, *runtime);
  add_weight_options(*verb, *weights);
  verb->add_option("--batch", options->batches, "Numbers of sequences that decode together")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_flag("--sampled", options->sampled,
                 "Also decode at temperature 1, without and with top-p");
  verb->add_option(
      "--json-schema", options->json_schema,
      "Also decode under this JSON schema, given as text; it must not allow the output to end");
  verb->add_option("--against", options->against,
                   "Programs to compare with: llama_cpp, ik_llama_cpp")
      ->delimiter(',');
  add_speculation_options(*verb, *spec, *depth);
}

}  // namespace hone::cli
