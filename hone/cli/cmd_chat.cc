// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <memory>
#include <string>

#include "hone/app/serve/chat.h"
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

struct ChatCommand {
  app::ChatOptions job;
  std::string tools_file;
  std::vector<std::string> messages;  // instead of those typed
  RuntimeChoice runtime;
  WeightChoice weights;
};

// Prints an answer while it is written. Returns false if the chat is over.
bool answer_one(Context& context, app::Chat& chat, const std::string& message, Json& turns) {
  const infer::Result result = chat.answer(
      message,
      [&](std::string_view text) {
        if (!context.common.json && !context.print(text)) Interrupt::request();
      },
      Interrupt::token());
  if (!context.common.json) context.print("\n");
  turns.push_back({{"message", message},
                   {"text", result.text},
                   {"finish_reason", name_of(result.finish_reason())},
                   {"prompt_tokens", result.last().timings.prompt_tokens},
                   {"cached_tokens", result.last().timings.cached_tokens}});
  return !Interrupt::requested();
}

// Reads messages until the end of the input. On a terminal, Ctrl-C stops an answer, and ends the
// program where no answer is written.
void talk(Context& context, app::Chat& chat, Json& turns) {
  const bool is_terminal = ::isatty(STDIN_FILENO) != 0;
  if (is_terminal) {
    log_info("end with Ctrl-D, stop an answer with Ctrl-C, start again with /clear");
  }
  std::string line;
  for (;;) {
    if (is_terminal) context.print("> ");
    if (!std::getline(std::cin, line)) return;
    if (line == "/clear") {
      chat.clear();
      continue;
    }
    if (line.empty()) continue;
    const Interrupt interrupt;
    try {
      if (answer_one(context, chat, line, turns)) continue;
      if (is_terminal && Interrupt::signal() == SIGINT) continue;
      context.status = Interrupt::exit_status();
      return;
    } catch (const Error& error) {
      if (error.category() != ErrorCategory::InvalidArgument) throw;
      log_error(error.what());
      if (!is_terminal) context.status = 2;
    }
  }
}

void run_chat(Context& context, ChatCommand& command) {
  app::ChatOptions& job = command.job;
  job.engine.kv = command.runtime.kv_dtype();
  job.engine.activations = command.runtime.activations();
  job.engine.weights = command.weights.options();
  job.request.sampling.seed = context.common.seed.value_or(0);
  if (!command.tools_file.empty()) job.tools = read_json_file(command.tools_file);
  HONE_REQUIRE(!context.common.json || !command.messages.empty(), "--json",
               "Give the messages by -p, each one a turn.");
  app::Chat chat(job, context.executor());
  Json turns = Json::array();
  if (!command.messages.empty()) {
    const Interrupt interrupt;
    for (const std::string& message : command.messages) {
      if (!answer_one(context, chat, message, turns)) break;
    }
    if (Interrupt::requested()) context.status = Interrupt::exit_status();
  } else {
    talk(context, chat, turns);
  }
  context.finish({{"turns", turns}}, [] {});
}

}  // namespace

void add_chat(CLI::App& program, Context& context) {
  CLI::App* verb = program.add_subcommand("chat", "Talk with a language model in a terminal");
  auto command = std::make_shared<ChatCommand>();
  infer::Request& request = command->job.request;
  request.max_tokens = 1024;
  // Where the model's file says nothing: small models write nonsense at temperature 1.
  request.sampling.temperature = 0.7F;
  request.sampling.top_p = 0.95F;
  verb->add_option("model", command->job.model,
                   "Model folder, *.gguf (any part of a split model) or llama2.c *.bin")
      ->required();
  verb->add_option("-p,--prompt", command->messages,
                   "A message instead of those typed (may be repeated: one turn each)")
      ->allow_extra_args(false);
  verb->add_option("--system", command->job.system, "The system message");
  verb->add_option("--tools", command->tools_file,
                   "JSON FILE with definitions of tools, which the template describes to the model")
      ->check(not_empty());
  verb->add_option("--chat-template", command->job.chat_template,
                   "Jinja FILE to use instead of the model's own template")
      ->check(not_empty());
  verb->add_option("-n,--max-tokens", request.max_tokens, "Maximum number of tokens of an answer")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_option(
          "--temp", command->job.sampling.temperature,
          "Temperature; 0 always selects the most likely token (default: the model's, or 0.7)")
      ->check(number_from(0, 5));
  verb->add_option("--top-p", command->job.sampling.top_p,
                   "Sample from the most likely tokens with this total probability (default: the "
                   "model's, or 0.95)")
      ->check(number_from(0, 1));
  verb->add_option("--top-k", command->job.sampling.top_k,
                   "Sample from this many most likely tokens (default: the model's, or all)")
      ->check(whole_number(0));
  add_context_options(*verb, command->job.engine);
  add_runtime_options(*verb, command->runtime);
  add_weight_options(*verb, command->weights);
  add_trace_option(*verb, context);
  verb->callback([&context, command] { run_chat(context, *command); });
}

}  // namespace hone::cli
