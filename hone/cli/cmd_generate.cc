// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "hone/app/generate.h"
#include "hone/app/generate_batch.h"
#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/runtime_options.h"
#include "hone/cli/trace_options.h"
#include "hone/cli/validators.h"
#include "hone/cli/weight_options.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"

namespace hone::cli {
namespace {

constexpr Index kMaxPromptBytes = Index{64} << 20;  // more than any context holds
constexpr Index kMaxSchemaBytes = Index{1} << 20;   // more than the compiler takes

struct GenerateCommand {
  app::GenerateOptions job;
  app::GenerateBatchOptions batch;  // with prompts; `job` has its defaults
  Index kv_mb = 0;
  std::string prompt, prompt_file, ids_file, json_schema;
  RuntimeChoice runtime;
  WeightChoice weights;
  std::vector<std::string> logit_bias;
  bool no_bos = false, no_model_defaults = false;
  std::string draft, spec_depth = "auto", spec_rule;
};

infer::LogitBias parse_bias(const std::string& text) {
  const std::size_t colon = text.find(':');
  infer::LogitBias entry;
  std::size_t id_end = 0, bias_end = 0;
  try {
    entry.id = std::stoi(text, &id_end);
    if (colon != std::string::npos) entry.bias = std::stof(text.substr(colon + 1), &bias_end);
  } catch (const std::exception&) {
    id_end = 0;
  }
  HONE_CHECK(id_end > 0 && id_end == colon && colon + 1 + bias_end == text.size(), "--logit-bias",
             "ID:VALUE", text);
  return entry;
}

void add_prompt_options(CLI::App& verb, GenerateCommand& command) {
  verb.add_option("model", command.job.model,
                  "Model folder, *.gguf (any part of a split model) or llama2.c *.bin")
      ->required();
  auto* prompt = verb.add_option_group("prompt", "Exactly one of these options");
  prompt->add_option("-p,--prompt", command.prompt, "The prompt");
  prompt->add_option("-f,--file", command.prompt_file, "File with the prompt")->check(not_empty());
  prompt
      ->add_option("--prompt-ids", command.ids_file,
                   "FILE with a JSON array of token ids, or with the output of hone tokenize "
                   "--json; the ids are used unchanged")
      ->check(not_empty());
  prompt
      ->add_option("--prompts", command.batch.prompts,
                   "FILE with one JSON object per line; each gets one JSON object as its result "
                   "(docs/generate.md)")
      ->check(not_empty());
  prompt->require_option(1);
  verb.add_flag("--no-bos", command.no_bos, "Do not add BOS, even if the tokenizer does");
  verb.add_flag("--parse-special", command.job.parse_special,
                "Convert special tokens in the prompt text to their ids, for prompts with a "
                "written-out chat template");
  CLI::Option* chat = verb.add_flag(
      "--chat", command.job.chat,
      "The prompt is a message of a user: surround it with the model's chat template");
  chat->excludes(verb.get_option("--no-bos"))->excludes(verb.get_option("--parse-special"));
  verb.add_option("--system", command.job.system, "The system message, with --chat")->needs(chat);
  verb.add_flag("--echo", command.job.echo, "Start the output with the prompt");
  verb.add_option("--tokenizer", command.job.engine.tokenizer,
                  "Tokenizer to use instead of the model's own, if any")
      ->check(not_empty());
}

void add_length_options(CLI::App& verb, GenerateCommand& command) {
  infer::Request& request = command.job.request;
  request.max_tokens = 128;
  verb.add_option("-n,--max-tokens", request.max_tokens, "Maximum number of tokens to generate")
      ->check(whole_number(1))
      ->capture_default_str();
  verb.add_option("--min-tokens", request.min_tokens,
                  "Number of tokens before the first stop token is allowed")
      ->check(whole_number(0));
  verb.add_option("--stop", request.stop, "Stop before this string (may be repeated)")
      ->allow_extra_args(false);
  verb.add_option(
          "--timeout", request.timeout_s,
          "Seconds after which generation stops, or fails if it has no token yet (0 means never)")
      ->check(number_from(0, 1e9));
  verb.add_flag("--ignore-eos", request.ignore_eos, "Do not end the text at stop tokens");
  verb.add_option("--json-schema", command.json_schema,
                  "JSON schema that the generated text must satisfy, as FILE or TEXT")
      ->check(not_empty("a schema or its file"));
  verb.add_flag(
      "--schema-ignore-unsupported", request.ignores_unsupported_schema,
      "Ignore schema keywords that cannot be enforced, and name them (default: reject the schema)");
}

void add_sampling_options(CLI::App& verb, GenerateCommand& command) {
  infer::SamplingChoice& choice = command.job.sampling;
  infer::SamplingParams& sampling = command.job.request.sampling;
  verb.add_option("--temp", choice.temperature,
                  "Temperature; 0 always selects the most likely token (default: 1)")
      ->check(number_from(0, 5));
  verb.add_option("--top-k", choice.top_k, "Sample from the K most likely tokens (0 means all)")
      ->check(whole_number(0));
  verb.add_option("--top-p", choice.top_p,
                  "Sample from the most likely tokens with this total probability")
      ->check(number_from(0, 1));
  verb.add_option("--min-p", choice.min_p,
                  "Sample from tokens with at least this fraction of the highest probability")
      ->check(number_from(0, 1));
  verb.add_option("--repetition-penalty", choice.repetition_penalty,
                  "Penalty for tokens of the prompt and the output")
      ->check(number_from(0.1, 10));
  verb.add_option("--presence-penalty", sampling.presence_penalty,
                  "Penalty for tokens that are in the output")
      ->check(number_from(-2, 2));
  verb.add_option("--frequency-penalty", sampling.frequency_penalty,
                  "Penalty per occurrence in the output")
      ->check(number_from(-2, 2));
  verb.add_option("--logit-bias", command.logit_bias,
                  "Add VALUE to the logit of token ID, as ID:VALUE (may be repeated)")
      ->allow_extra_args(false);
  verb.add_flag("--no-model-defaults", command.no_model_defaults,
                "Ignore the model's generation_config.json");
  verb.add_option("--logprobs", command.job.request.logprobs,
                  "Report the log probabilities of each token and of the K most likely ones")
      ->check(whole_number(0, 20));
}

void add_engine_options(CLI::App& verb, GenerateCommand& command) {
  infer::EngineOptions& engine = command.job.engine;
  add_runtime_options(verb, command.runtime);
  add_weight_options(verb, command.weights);
  add_context_options(verb, engine, &command.kv_mb);
  verb.add_option("--prefill-chunk", engine.prefill_chunk,
                  "Number of prompt tokens per prefill step")
      ->check(whole_number(1))
      ->capture_default_str();
}

void add_draft_options(CLI::App& verb, GenerateCommand& command) {
  CLI::Option* draft = add_draft_option(verb, command.draft);
  verb.add_option("--spec-k", command.spec_depth,
                  "Number of guesses per step with --draft: 1 to 16, or auto: as many as make "
                  "decoding faster")
      ->needs(draft)
      ->capture_default_str();
  verb.add_option(
          "--spec-rule", command.spec_rule,
          "Rule for the guesses of a model: coupled (same text as without guesses) or exact"
          " (same distribution, higher acceptance); default: coupled with --seed or --prompts,"
          " else exact")
      ->check(CLI::IsMember({"coupled", "exact"}))
      ->needs(draft);
}

// `wants_same_text`: as without drafts, unless the rule was given.
void read_draft_options(const GenerateCommand& command, bool wants_same_text,
                        app::GenerateOptions& job) {
  set_draft(command.draft, job.engine);
  job.request.spec.depth = read_draft_depth(command.spec_depth);
  const bool is_exact = command.spec_rule.empty() ? !wants_same_text : command.spec_rule == "exact";
  job.request.spec.rule = is_exact ? infer::SpecRule::Exact : infer::SpecRule::Coupled;
}

void add_batch_options(CLI::App& verb, GenerateCommand& command) {
  CLI::Option* prompts = verb.get_option("--prompts");
  verb.add_option("--output", command.batch.output,
                  "FILE for the results of --prompts; it must not exist yet (default: stdout)")
      ->check(not_empty())
      ->needs(prompts);
  verb.add_flag("--resume", command.batch.resume,
                "Continue from the results that an interrupted job left in OUTPUT.partial, if any")
      ->needs(verb.get_option("--output"));
  verb.add_option("--max-sequences", command.job.engine.max_sequences,
                  "Number of prompts of --prompts that run together")
      ->needs(prompts)
      ->check(whole_number(1, 1024))
      ->capture_default_str();
}

// The schema itself begins with a brace or is a boolean; everything else names a file.
std::string read_schema_option(const std::string& option) {
  const std::size_t begin = option.find_first_not_of(" \t\r\n");
  const bool is_text = begin != std::string::npos && option[begin] == '{';
  if (is_text || option == "true" || option == "false") return option;
  std::string text = read_text_file(option, kMaxSchemaBytes);
  HONE_REQUIRE(!text.empty(), "--json-schema", "The file is empty.");
  return text;
}

// Everything but the prompt and where the text goes.
void complete_job(const Context& context, GenerateCommand& command) {
  app::GenerateOptions& job = command.job;
  if (!command.json_schema.empty()) {
    job.request.json_schema = read_schema_option(command.json_schema);
  }
  const bool is_batch = !command.batch.prompts.empty();
  HONE_REQUIRE(!job.request.ignores_unsupported_schema || is_batch || !command.json_schema.empty(),
               "--schema-ignore-unsupported", "There is no schema.");
  for (const std::string& entry : command.logit_bias) {
    job.request.sampling.logit_bias.push_back(parse_bias(entry));
  }
  job.request.sampling.seed = context.common.seed.value_or(0);
  // A line of --prompts has the same text whatever runs beside it.
  read_draft_options(command, is_batch || context.common.seed.has_value(), job);
  job.add_bos = !command.no_bos;
  job.use_model_defaults = !command.no_model_defaults;
  job.engine.kv = command.runtime.kv_dtype();
  job.engine.activations = command.runtime.activations();
  job.engine.kv_bytes = command.kv_mb << 20;
  job.engine.weights = command.weights.options();
  job.stop = Interrupt::token();
}

// To stdout. If the reader is gone or the disk is full, the job ends; finish() reports which.
void print_text(Context& context, std::string_view text) {
  if (!context.print(text)) Interrupt::request();
}

void run_batch(Context& context, GenerateCommand& command) {
  app::GenerateBatchOptions& batch = command.batch;
  HONE_REQUIRE(!command.job.chat, "--chat", "It does not go together with --prompts.");
  HONE_REQUIRE(!context.common.json || !batch.output.empty(), "--json",
               "With --prompts it needs --output, as stdout has the results otherwise.");
  complete_job(context, command);
  batch.defaults = command.job;
  batch.on_line = [&context](std::string_view line) { print_text(context, concat(line, "\n")); };
  const Interrupt interrupt;
  const app::GenerateBatchResult result = app::generate_batch(batch, context.executor());
  if (result.is_interrupted) {
    context.status = Interrupt::exit_status();
  } else if (result.failed > 0) {
    context.status = 1;
  }
  context.finish(result.document, [&] {
    const std::string before =
        result.continued > 0 ? concat(" (", result.continued, " of them before)") : std::string();
    log_info(concat(result.prompts, " prompts", before, ", ", result.failed, " failed, ",
                    result.generated_tokens, " tokens at ",
                    static_cast<double>(result.generated_tokens) / result.seconds, "/s"));
  });
  if (result.is_interrupted && !batch.output.empty()) {
    log_info(concat("interrupted: ", result.prompts, " results are in ", batch.output.string(),
                    ".partial; --resume continues"));
  }
}

void run_generate(Context& context, GenerateCommand& command) {
  if (!command.batch.prompts.empty()) return run_batch(context, command);
  app::GenerateOptions& job = command.job;
  HONE_REQUIRE(!job.chat || command.ids_file.empty(), "--chat", "It needs a prompt of text.");
  HONE_REQUIRE(job.request.logprobs == 0 || context.common.json, "--logprobs",
               "They are in the document of --json, or in the results of --prompts.");
  job.prompt = command.prompt_file.empty() ? command.prompt
                                           : read_text_file(command.prompt_file, kMaxPromptBytes);
  if (!command.ids_file.empty()) job.prompt_ids = read_token_ids(command.ids_file);
  complete_job(context, command);
  job.measure_share = context.common.json;
  if (!context.common.json) {
    job.on_text = [&context](std::string_view text) { print_text(context, text); };
  }
  const Interrupt interrupt;
  const app::GenerateResult result = app::generate(job, context.executor());
  // A timeout cancels as well, and that is what was asked for.
  if (result.finish_reason == infer::FinishReason::Cancelled && interrupt.requested()) {
    context.status = Interrupt::exit_status();
  }
  context.finish(result.document, [&] {
    std::fputc('\n', stdout);
    const infer::Timings& t = result.timings;
    log_info(concat(t.prompt_tokens, " prompt tokens at ", t.prompt_per_s(), "/s, ",
                    t.generated_tokens, " generated at ", t.decode_per_s(), "/s, ",
                    name_of(result.finish_reason)));
  });
}

}  // namespace

void add_generate(CLI::App& program, Context& context) {
  CLI::App* verb = program.add_subcommand("generate", "Generate text from a prompt, or from many");
  auto command = std::make_shared<GenerateCommand>();
  add_prompt_options(*verb, *command);
  add_length_options(*verb, *command);
  add_sampling_options(*verb, *command);
  add_engine_options(*verb, *command);
  add_draft_options(*verb, *command);
  add_batch_options(*verb, *command);
  add_trace_option(*verb, context);
  verb->callback([&context, command] { run_generate(context, *command); });
}

}  // namespace hone::cli
