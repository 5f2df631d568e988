// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "hone/app/eval_lm.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/runtime_options.h"
#include "hone/cli/trace_options.h"
#include "hone/cli/validators.h"
#include "hone/core/check.h"

namespace hone::cli {
namespace {

struct EvalCommand {
  app::EvalOptions job;
  std::string data, ids_file;
  RuntimeChoice runtime;
};

void add_options(CLI::App& verb, EvalCommand& command) {
  verb.add_option("model", command.job.model, "Model folder, *.gguf or llama2.c *.bin")->required();
  auto* data = verb.add_option_group("data", "Exactly one of these options");
  data->add_option("--data", command.data, "UTF-8 text file")->envname("HONE_DATA");
  data->add_option("--token-ids", command.ids_file, "FILE with a JSON array of ids")
      ->envname("HONE_TOKEN_IDS");
  data->require_option(1);
  verb.add_option("--baseline", command.job.baseline, "Model to compare to, token by token")
      ->envname("HONE_BASELINE");
  verb.add_option("--tokenizer", command.job.tokenizer, "Tokenizer to use if the model has none")
      ->envname("HONE_TOKENIZER");
  verb.add_option("--max-tokens", command.job.max_tokens, "Use only the first N tokens")
      ->check(whole_number(1))
      ->envname("HONE_MAX_TOKENS");
  verb.add_option("--window", command.job.window,
                  "Tokens per window (default: the model's context, at most 1024)")
      ->check(whole_number(2))
      ->envname("HONE_WINDOW");
  add_runtime_options(verb, command.runtime);
}

void print_card(const Json& card) {
  std::string text;
  for (const auto& [key, value] : card.items()) text += concat(key, ": ", value.dump(), "\n");
  std::fputs(text.c_str(), stdout);
}

void run_eval(Context& context, EvalCommand& command) {
  app::EvalOptions& job = command.job;
  job.data_name = command.data + command.ids_file;
  if (!command.data.empty()) job.documents = app::read_eval_text(command.data);
  if (!command.ids_file.empty()) job.token_ids = read_token_ids(command.ids_file);
  job.kv = command.runtime.kv_dtype();
  job.activations = command.runtime.activations();
  const Interrupt interrupt;
  job.cancelled = [&] { return interrupt.requested(); };
  const Json card = app::evaluate(job, context.executor()).document();
  context.finish(card, [&] { print_card(card); });
}

}  // namespace

void add_eval(CLI::App& program, Context& context) {
  CLI::App* verb =
      program.add_subcommand("eval", "Measure the quality of a language model on held-out text");
  auto command = std::make_shared<EvalCommand>();
  add_options(*verb, *command);
  add_trace_option(*verb, context);
  verb->callback([&context, command] { run_eval(context, *command); });
}

}  // namespace hone::cli
