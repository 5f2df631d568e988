// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_serve.h"
#include "hone/cli/bench_verb.h"
#include "hone/cli/validators.h"

namespace hone::cli {

void add_bench_serve(CLI::App& bench, Context& context) {
  auto options = std::make_shared<bench::BenchServeOptions>();
  CLI::App* verb = add_bench_verb(
      bench, context, "serve", "Measure running servers of the OpenAI API from outside",
      [options](bench::BenchRun& run, Measurer&) { bench::bench_serve(*options, run); });
  verb->add_option(
          "url", options->urls,
          "Servers: http://HOST:PORT/v1 or NAME=http://HOST:PORT/v1; the first is compared "
          "with the others")
      ->required();
  verb->add_option("--model", options->model, "Model to ask for (default: each server's first)");
  verb->add_option("--api-key", options->key, "Key for all servers");
  verb->add_option("--streams", options->streams, "Numbers of clients that ask at once")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--prompt", options->prompt, "Words of a prompt, about as many tokens")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_option("--tokens", options->tokens, "Tokens of an answer")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_option("--prefix", options->prefixes,
                   "Words that the prompts of all clients share; measures the time to the first "
                   "token")
      ->delimiter(',');
}

}  // namespace hone::cli
