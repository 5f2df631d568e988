// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "hone/app/serve/serve.h"
#include "hone/app/vision_folder.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/runtime_options.h"
#include "hone/cli/torch_runs.h"
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
  app::ServeOptions job;           // of a language model
  app::ServeModuleOptions module;  // of others; what both have is in `job`
  Index kv_mb = 0, body_mb = 4, max_queue = 0;
  std::string key_file, draft;
  RuntimeChoice runtime;
  WeightChoice weights;
  // Options for one kind of model only.
  std::vector<CLI::Option*> text_options, module_options;
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
  const auto keep_text = [&](CLI::Option* option) { command.text_options.push_back(option); };
  keep_text(verb.add_option("--max-seqs", engine.max_sequences, "Texts that run together")
                ->check(whole_number(1, 1024))
                ->capture_default_str());
  verb.add_option("--max-queue", command.max_queue,
                  "Texts (default: 64) or inputs (1024) that may wait; more are refused")
      ->check(whole_number(1));
  keep_text(verb.add_option("--max-client", engine.max_tenant_requests,
                            "Texts of one key that may run or wait (default: half of all with "
                            "several keys)")
                ->check(whole_number(1)));
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
  const auto keep = [&](CLI::Option* option) { command.text_options.push_back(option); };
  verb.add_option("model", command.job.model,
                  "Language model (folder, *.gguf, any part of a split model, or llama2.c *.bin), "
                  "folder of a classifier, or TorchScript file")
      ->required();
  verb.add_option("--name", command.job.name, "Name of the model (default: that of its file)");
  keep(verb.add_option("--tokenizer", engine.tokenizer,
                       "Tokenizer to use instead of the model's own, if any")
           ->check(not_empty()));
  keep(verb.add_option("--chat-template", command.job.chat_template,
                       "Jinja FILE to use instead of the model's own template")
           ->check(not_empty()));
  add_runtime_options(verb, command.runtime);
  add_weight_options(verb, command.weights);
  add_context_options(verb, engine, &command.kv_mb);
  keep(add_draft_option(verb, command.draft));
  for (const char* name : {"--kv", "--act", "--weights", "--pack-cache", "--ctx", "--kv-mb"}) {
    keep(verb.get_option(name));
  }
}

void add_module_options(CLI::App& verb, ServeCommand& command) {
  const auto keep = [&](CLI::Option* option) { command.module_options.push_back(option); };
  keep(verb.add_option("--max-batch", command.module.max_batch,
                       "For a classifier or a TorchScript file: inputs that run together")
           ->check(whole_number(1, 4096))
           ->capture_default_str());
  keep(verb.add_option("--max-wait-ms", command.module.max_wait_ms,
                       "For these: how long an input waits for others to share its batch")
           ->check(number_from(0, 1e6))
           ->capture_default_str());
  keep(verb.add_option("--max-latency-ms", command.module.max_latency_ms,
                       "For these: refuse inputs whose results would take longer (default: none)")
           ->check(number_from(0, 1e6)));
}

void run_module(Context& context, const ServeCommand& command) {
  refuse_options(command.text_options, concat("This option is for language models, and ",
                                              command.job.model.string(), " is none."));
  HONE_REQUIRE(run_module_serve != nullptr, "serve", "A classifier was not left to hone-torch.");
  app::ServeModuleOptions job = command.module;
  static_cast<app::ServeJob&>(job) = command.job;
  if (command.max_queue > 0) job.max_queue = command.max_queue;
  job.threads = context.common.threads;
  run_module_serve(job);
}

void run_text(Context& context, ServeCommand& command) {
  refuse_options(command.module_options,
                 concat("This option is for classifiers and TorchScript files, and ",
                        command.job.model.string(), " is a language model."));
  app::ServeOptions& job = command.job;
  infer::EngineOptions& engine = job.engine;
  if (command.max_queue > 0) engine.max_queue = command.max_queue;
  engine.kv = command.runtime.kv_dtype();
  engine.activations = command.runtime.activations();
  engine.kv_bytes = command.kv_mb << 20;
  engine.weights = command.weights.options();
  engine.prefill_seconds = kPrefillSeconds;
  set_draft(command.draft, engine);
  if (engine.max_tenant_requests == 0 && job.server.keys.size() > 1) {
    engine.max_tenant_requests = std::max<Index>(1, (engine.max_queue + engine.max_sequences) / 2);
  }
  app::serve(job, context.executor());
}

void run_serve(Context& context, ServeCommand& command) {
  app::ServeJob& job = command.job;
  if (!command.key_file.empty()) job.server.keys = server::read_api_keys(command.key_file);
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
  if (!std::filesystem::exists(job.model)) {
    fail(ErrorCategory::NotFound, job.model.string(),
         "a model folder, a *.gguf, a llama2.c *.bin or a TorchScript file", "nothing");
  }
  if (app::is_vision_model(job.model) || app::is_archive(job.model)) {
    run_module(context, command);
  } else {
    run_text(context, command);
  }
}

}  // namespace

void add_serve(CLI::App& program, Context& context) {
  CLI::App* verb = program.add_subcommand(
      "serve", "Serve a language model to clients of the OpenAI API, or a classifier");
  auto command = std::make_shared<ServeCommand>();
  add_model_options(*verb, *command);
  add_address_options(*verb, *command);
  add_limit_options(*verb, *command);
  add_module_options(*verb, *command);
  add_trace_option(*verb, context);
  verb->callback([&context, command] { run_serve(context, *command); });
}

}  // namespace hone::cli
