// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "hone/app/serve/serve.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/runtime_options.h"
#include "hone/cli/trace_options.h"
#include "hone/cli/validators.h"
#include "hone/cli/weight_options.h"
#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::cli {
namespace {

// Longest time of a step that reads prompts alone, so that a new request does not wait long.
constexpr double kPrefillSeconds = 0.25;

struct ServeCommand {
  app::ServeOptions job;
  Index kv_mb = 0, body_mb = 4;
  std::string key_file, draft;
  RuntimeChoice runtime;
  WeightChoice weights;
};

void add_address_options(CLI::App& verb, ServeCommand& command) {
  server::ServerOptions& server = command.job.server;
  verb.add_option("--host", server.listener.host, "Address to listen on")->capture_default_str();
  verb.add_option("--port", server.listener.port, "Port; 0 chooses a free one")
      ->check(whole_number(0, 65535))
      ->capture_default_str();
  verb.add_option("--port-file", command.job.port_file,
                  "FILE that gets the port once the server listens");
  verb.add_option("--api-key-file", command.key_file,
                  "FILE with one key a line, as NAME:KEY or KEY; requests need one of them")
      ->check(not_empty());
  verb.add_flag("--allow-anonymous", server.allow_anonymous, "Serve other machines without keys");
  verb.add_flag("--metrics-open", server.opens_metrics, "GET /metrics needs no key");
  verb.add_option("--cors-origin", server.cors_origins,
                  "Origin whose pages may ask (may be repeated); * for all")
      ->allow_extra_args(false);
}

void add_limit_options(CLI::App& verb, ServeCommand& command) {
  infer::EngineOptions& engine = command.job.engine;
  server::ListenerOptions& listener = command.job.server.listener;
  verb.add_option("--max-seqs", engine.max_sequences, "Texts that run together")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  verb.add_option("--max-queue", engine.max_queue, "Texts that may wait; more are refused")
      ->check(whole_number(1))
      ->capture_default_str();
  verb.add_option("--max-client", engine.max_tenant_requests,
                  "Texts of one key that may run or wait (default: half of all with several keys)")
      ->check(whole_number(1));
  verb.add_option("--max-connections", listener.max_connections, "Open connections")
      ->check(whole_number(1))
      ->capture_default_str();
  verb.add_option("--max-body", command.body_mb, "MiB of a request's body")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  verb.add_option("--drain-s", command.job.server.drain_s,
                  "Seconds for running requests when the server ends")
      ->check(number_from(0, 1e6))
      ->capture_default_str();
}

void add_model_options(CLI::App& verb, ServeCommand& command) {
  infer::EngineOptions& engine = command.job.engine;
  verb.add_option("model", command.job.model,
                  "Model folder, *.gguf (any part of a split model) or llama2.c *.bin")
      ->required();
  verb.add_option("--name", command.job.name, "Name of the model (default: that of its file)");
  verb.add_option("--tokenizer", engine.tokenizer,
                  "Tokenizer to use instead of the model's own, if any")
      ->check(not_empty());
  verb.add_option("--chat-template", command.job.chat_template,
                  "Jinja FILE to use instead of the model's own template")
      ->check(not_empty());
  add_runtime_options(verb, command.runtime);
  add_weight_options(verb, command.weights);
  add_context_options(verb, engine, &command.kv_mb);
  add_draft_option(verb, command.draft);
}

void run_serve(Context& context, ServeCommand& command) {
  app::ServeOptions& job = command.job;
  if (!command.key_file.empty()) job.server.keys = server::read_api_keys(command.key_file);
  infer::EngineOptions& engine = job.engine;
  engine.kv = command.runtime.kv_dtype();
  engine.activations = command.runtime.activations();
  engine.kv_bytes = command.kv_mb << 20;
  engine.weights = command.weights.options();
  engine.prefill_seconds = kPrefillSeconds;
  set_draft(command.draft, engine);
  if (engine.max_tenant_requests == 0 && job.server.keys.size() > 1) {
    engine.max_tenant_requests = std::max<Index>(1, (engine.max_queue + engine.max_sequences) / 2);
  }
  job.server.listener.max_body = command.body_mb << 20;
  job.stop = Interrupt::token();
  job.on_ready = [&context](const Json& ready) {
    if (context.common.json) {
      context.print(concat(ready.dump(), "\n"));
    } else {
      const auto host = ready["host"].get<std::string>();
      context.print(concat("serving ", ready["model"].get<std::string>(), " at http://", host, ":",
                           ready["port"].get<int>(), "/v1\n"));
    }
  };
  const Interrupt interrupt;
  app::serve(job, context.executor());
}

}  // namespace

void add_serve(CLI::App& program, Context& context) {
  CLI::App* verb =
      program.add_subcommand("serve", "Serve a language model to clients of the OpenAI API");
  auto command = std::make_shared<ServeCommand>();
  add_model_options(*verb, *command);
  add_address_options(*verb, *command);
  add_limit_options(*verb, *command);
  add_trace_option(*verb, context);
  verb->callback([&context, command] { run_serve(context, *command); });
}

}  // namespace hone::cli
