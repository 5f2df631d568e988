// SPDX-License-Identifier: Apache-2.0
#include "hone/app/generate_batch.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hone/app/blame_weights.h"
#include "hone/app/generate_json.h"
#include "hone/app/loaded_weights.h"
#include "hone/app/prompt_line.h"
#include "hone/app/result_file.h"
#include "hone/app/schema_check.h"
#include "hone/core/check.h"
#include "hone/core/file/sha256.h"
#include "hone/core/log.h"
#include "hone/core/machine/clock.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"
#include "hone/core/text_format.h"
#include "hone/text/load_tokenizer.h"

namespace hone::app {
namespace {

using infer::Engine;
using infer::Event;
using Next = LineReader::Next;

// Results wait for earlier ones, so that a line that takes long does not stop the others at once.
constexpr Index kWindows = 16;
constexpr int kWaitMs = 100;  // for the next line, when nothing else is to be done

// A line on its way from the file to its result.
struct Answer {
  Json result;                                 // what is known of it
  std::string where;                           // the line
  std::string echo;                            // the text begins with it
  std::shared_ptr<infer::CollectSink> sink{};  // null once the result is complete

  bool is_running() const { return sink != nullptr && !sink->is_finished(); }
};

// An error of a line: "[prompts.jsonl, line 3: max_tokens] expected …".
Json error_json(ErrorCategory category, const std::string& where, std::string_view message) {
  std::string located(message);
  if (located.find(where) == located.npos) {
    located = located.starts_with('[') ? concat("[", where, ": ", message.substr(1))
                                       : concat("[", where, "] ", message);
  }
  return {{"category", name_of(category)}, {"message", std::move(located)}};
}

// Names, sizes and times of change of files, so that results of another model are noticed.
Json describe_files(std::span<const std::filesystem::path> files) {
  Json list = Json::array();
  for (const std::filesystem::path& file : files) {
    std::error_code ignored;  // of files that are not there
    list.push_back({file.filename().string(), std::filesystem::file_size(file, ignored),
                    std::filesystem::last_write_time(file, ignored).time_since_epoch().count()});
  }
  return list;
}

// The files of a model: those of its weights, and the configurations in its folder.
std::vector<std::filesystem::path> files_of(std::vector<std::filesystem::path> weights,
                                            const std::filesystem::path& model) {
  if (std::filesystem::is_directory(model)) {
    for (const char* name : {"config.json", "generation_config.json"})
      weights.push_back(model / name);
  }
  return weights;
}

// Describes all files that texts depend on.
Json describe_files(const Engine& engine, const GenerateOptions& options) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files = files_of(engine.info().files, options.model);
  fs::path tokenizer = options.engine.tokenizer;
  if (tokenizer.empty() && engine.info().format != "gguf") {
    tokenizer =
        fs::is_directory(options.model) ? options.model : fs::absolute(options.model).parent_path();
  }
  if (!tokenizer.empty()) {
    const std::vector<fs::path> more = text::list_tokenizer_files(tokenizer);
    files.insert(files.end(), more.begin(), more.end());
  }
  return describe_files(files);
}

// All options and properties of the model that texts depend on.
std::string describe_texts(const Engine& engine, const GenerateOptions& options) {
  const infer::Request& request = options.request;
  const infer::SamplingParams& sampling = request.sampling;
  Json text{
      {"model", {engine.info().format, engine.info().file_bytes, engine.info().wanted_context}},
      {"files", describe_files(engine, options)},
      {"types",
       {static_cast<int>(options.engine.kv), static_cast<int>(options.engine.activations),
        name_of(options.engine.weights.format)}},
      {"prompt", {options.add_bos, options.echo}},
      {"defaults", options.use_model_defaults ? engine.info().generation_defaults : Json()},
      {"length", {request.max_tokens, request.min_tokens, request.ignore_eos}},
      {"stop", request.stop},
      {"schema", request.json_schema},
      {"logprobs", request.logprobs},
      {"seed", sampling.seed},
      {"penalties", {sampling.presence_penalty, sampling.frequency_penalty}}};
  if (options.parse_special) text["parse_special"] = true;
  if (request.ignores_unsupported_schema) text["ignores_unsupported_schema"] = true;
  // Under the exact rule, a text also depends on where rounds of drafts begin.
  if (!options.engine.draft.model.empty() && request.spec.rule == infer::SpecRule::Exact) {
    text["drafts"] =
        describe_files(files_of(engine.info().draft_files, options.engine.draft.model));
  }
  for (const infer::LogitBias& bias : sampling.logit_bias) {
    text["bias"].push_back({bias.id, bias.bias});
  }
  const auto add = [&text](const char* name, const auto& choice) {
    if (choice) text[name] = *choice;
  };
  add("temperature", options.sampling.temperature);
  add("top_k", options.sampling.top_k);
  add("top_p", options.sampling.top_p);
  add("min_p", options.sampling.min_p);
  add("repetition_penalty", options.sampling.repetition_penalty);
  return text.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Refuses options of the command line that no line can have, before weights are read.
void check_defaults(const infer::ModelHeader& header, const GenerateOptions& options) {
  infer::Request request = options.request;
  request.tokens = {0};
  request.sampling =
      infer::resolve_sampling(request.sampling, options.sampling, /*generation_defaults=*/{});
  header.check(request);
}

class Job {
 public:
  Job(const GenerateBatchOptions& options, Executor& executor)
      : options_(options), lines_(options.prompts) {
    if (!options.output.empty()) {
      file_.emplace(options.output, options.resume, options.prompts);
    }
    check_default_schema(options.defaults.request);
    total_ = count_prompts(options.prompts, options.defaults.stop);
    infer::EngineOptions engine_options = options.defaults.engine;
    engine_options.executor = &executor;
    engine_options.need_tokenizer = false;  // lines may have ids
    engine_options.on_progress = [this](Index) { report(); };
    engine_options.max_queue = std::max(engine_options.max_queue, engine_options.max_sequences);
    auto header = infer::ModelHeader::open_or_throw(options.defaults.model, engine_options);
    check_defaults(header, options.defaults);
    blame_weights({&options.defaults.model, 1}, [&] { engine_ = Engine::load(std::move(header)); });
    most_ = engine_options.max_sequences;
    texts_ = describe_texts(*engine_, options.defaults);
  }

  GenerateBatchResult run();

 private:
  bool is_interrupted() const { return options_.defaults.stop.stop_requested(); }
  Index running() const { return std::ranges::count_if(answers_, &Answer::is_running); }
  std::string digest(std::string_view line) const {
    return sha256_hex_of_text(concat(line, "\n", texts_)).substr(0, 16);
  }

  void skip_done();
  void check_done(const std::string& done, const std::string& line);
  void read_lines();
  void start(std::string_view line, Next next);
  void submit(std::string_view line, PromptLine& prompt, Answer& answer);
  void write_results();
  void complete(Answer& answer);
  void write(const Json& result);
  void note_error(const Json& result);
  double elapsed() const { return seconds_between(begin_ns_, steady_clock().now_ns()); }
  void report();
  void finish();

  const GenerateBatchOptions& options_;
  PromptFile lines_;
  Index total_ = 0;  // lines; 0 if unknown
  std::optional<ResultFile> file_;
  GenerateBatchResult result_;  // outlives the engine, whose last events count in it
  std::unique_ptr<Engine> engine_;
  Index most_ = 0;              // requests that run together
  std::string texts_;           // of describe_texts()
  std::deque<Answer> answers_;  // in the order of the lines; the first is the next to be written
  bool has_ended_ = false;      // the file
  Json first_error_;
  TimeNs begin_ns_ = 0;
  double reported_s_ = 0;             // when report() looked last
  std::optional<Progress> progress_;  // of run()
};

GenerateBatchResult Job::run() {
  begin_ns_ = steady_clock().now_ns();
  skip_done();
  log_loaded(engine_->info());
  progress_.emplace("generate", total_ > 0 ? std::max<Index>(total_ - result_.continued, 1) : 0,
                    "prompts");
  while (!is_interrupted()) {
    read_lines();
    write_results();
    if (has_ended_ && answers_.empty()) break;
    engine_->step();
    report();
  }
  progress_.reset();
  result_.is_interrupted = is_interrupted() && !(has_ended_ && answers_.empty());
  result_.seconds = elapsed();
  finish();
  return std::move(result_);
}

// Passes over the lines that have results already.
void Job::skip_done() {
  std::string line;
  while (file_ && !is_interrupted()) {
    const std::optional<std::string> done = file_->next_done();
    if (!done) return;
    Next next = Next::None;
    while (next == Next::None && !is_interrupted()) next = lines_.next(line, kWaitMs);
    if (next == Next::None) return;  // interrupted
    check_done(*done, next == Next::Line ? line : "");
    ++result_.prompts;
    ++result_.continued;
  }
}

void Job::check_done(const std::string& done, const std::string& line) {
  const std::string where = concat(file_->partial().string(), ", line ", result_.prompts + 1);
  const Json result = parse_json(done, where);
  if (!result.is_object() || !result.contains("digest")) {
    fail_corrupt(where, "a result of hone generate", done.substr(0, 40));
  }
  HONE_REQUIRE(result["digest"] == digest(line), where,
               "This is the result of another prompt, model or option. Remove the file to start "
               "over.");
  note_error(result);
}

// Submits lines while there is room. Waits for one if there is nothing else to do.
void Job::read_lines() {
  std::string line;
  while (!has_ended_ && running() < most_ && std::ssize(answers_) < kWindows * most_) {
    const Next next = lines_.next(line, answers_.empty() ? kWaitMs : 0);
    has_ended_ = next == Next::End;
    if (next == Next::End || next == Next::None) return;
    start(line, next);
  }
}

void Job::start(std::string_view line, Next next) {
  Answer& answer = answers_.emplace_back();
  answer.where = lines_.where();
  PromptLine prompt{.id = nullptr,
                    .prompt = {},
                    .request = options_.defaults.request,
                    .sampling = options_.defaults.sampling};
  Json error;
  try {
    if (next == Next::TooLong) {
      fail_corrupt(lines_.where(), concat("at most ", PromptFile::kMaxLineBytes, " bytes"), "more");
    }
    read_prompt_line(line, lines_.where(), prompt);
    submit(line, prompt, answer);
  } catch (const Error& failure) {
    error = error_json(failure.category(), answer.where, failure.what());
  }
  answer.result["id"] = prompt.id.is_null() ? Json(lines_.number()) : prompt.id;
  answer.result["digest"] = digest(next == Next::TooLong ? "" : line);
  if (!error.is_null()) {
    answer.result["finish_reason"] = name_of(infer::FinishReason::Failed);
    answer.result["error"] = std::move(error);
  }
}

void Job::submit(std::string_view line, PromptLine& prompt, Answer& answer) {
  HONE_TRACE_ZONE("tokenize", {"bytes", line.size()});
  const GenerateOptions& defaults = options_.defaults;
  infer::Request& request = prompt.request;
  request.tokens = prompt.tokens ? std::move(*prompt.tokens)
                                 : engine_->tokenizer().encode(prompt.prompt, defaults.encoding());
  request.sampling = infer::resolve_sampling(
      request.sampling, prompt.sampling,
      defaults.use_model_defaults ? engine_->info().generation_defaults : Json::object());
  if (defaults.echo) {
    answer.echo = prompt.tokens ? text_of(*engine_, request.tokens) : prompt.prompt;
  }
  if (Json ignored = ignored_keywords(request); !ignored.is_null()) {
    answer.result["schema_ignored"] = std::move(ignored);
  }
  const auto sink = std::make_shared<infer::CollectSink>([this](const Event& event) {
    result_.generated_tokens += event.token.has_value();
    return true;
  });
  engine_->submit(std::move(request), sink);
  answer.sink = sink;
}

void Job::write_results() {
  while (!answers_.empty() && !answers_.front().is_running()) {
    Answer& answer = answers_.front();
    if (answer.sink != nullptr) complete(answer);
    write(answer.result);
    answers_.pop_front();
  }
}

void Job::complete(Answer& answer) {
  const std::vector<Event>& events = answer.sink->events;
  const Event& last = events.back();
  Json& result = answer.result;
  if (*last.finished == infer::FinishReason::Failed) {
    // A file of the model that was truncated: no later line could be answered either.
    if (last.error_category == ErrorCategory::CorruptFile) {
      throw Error(last.error_category, last.error);
    }
    result["finish_reason"] = name_of(*last.finished);
    result["error"] = error_json(last.error_category, answer.where, last.error);
    if (last.refusal) result["error"]["refusal"] = name_of(*last.refusal);
    return;
  }
  std::string text = std::move(answer.echo);
  Json tokens = Json::array();
  for (const Event& event : events) {
    if (event.token) tokens.push_back(*event.token);
    text += event.text;
  }
  result["text"] = std::move(text);
  result["tokens"] = std::move(tokens);
  result["finish_reason"] = name_of(*last.finished);
  result["timings"] = timings_json(last.timings);
  const bool has_logprobs =
      std::ranges::any_of(events, [](const Event& event) { return !event.top.empty(); });
  if (has_logprobs) result["logprobs"] = logprobs_json(*engine_, events);
}

void Job::write(const Json& result) {
  const std::string line = result.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (file_) {
    file_->append(line);
  } else {
    options_.on_line(line);
  }
  ++result_.prompts;
  note_error(result);
}

void Job::note_error(const Json& result) {
  if (!result.contains("error")) return;
  ++result_.failed;
  if (first_error_.is_null()) first_error_ = result["error"];
}

// Called before each layer of the model, so that it does little most of the time.
void Job::report() {
  constexpr double kEvery = 0.1;
  const double seconds = elapsed();
  if (!progress_ || seconds - reported_s_ < kEvery) return;
  reported_s_ = seconds;
  const double rate = static_cast<double>(result_.generated_tokens) / seconds;
  progress_->update(result_.prompts - result_.continued,
                    concat(fixed(rate, 1), " tokens/s, ", engine_->stats().running, " together, ",
                           result_.failed, " failed"));
}

void Job::finish() {
  if (!result_.is_interrupted) {
    HONE_REQUIRE(result_.prompts > 0, options_.prompts.string(), "The file has no prompts.");
    if (file_) file_->finish();
  }
  const double rate = static_cast<double>(result_.generated_tokens) / result_.seconds;
  result_.document = {{"prompts", result_.prompts},
                      {"continued", result_.continued},
                      {"failed", result_.failed},
                      {"generated_tokens", result_.generated_tokens},
                      {"cached_tokens", engine_->stats().cached_tokens},
                      {"preemptions", engine_->stats().preemptions},
                      {"seconds", result_.seconds},
                      {"tokens_per_s", rate},
                      {"interrupted", result_.is_interrupted},
                      {"threads", engine_->info().threads}};
  if (!first_error_.is_null()) result_.document["first_error"] = first_error_;
}

ErrorCategory category_of(const Json& error) {
  for (int at = 0; at <= static_cast<int>(ErrorCategory::Internal); ++at) {
    const auto category = static_cast<ErrorCategory>(at);
    if (error.value("category", "") == name_of(category)) return category;
  }
  return ErrorCategory::Internal;
}

}  // namespace

GenerateBatchResult generate_batch(const GenerateBatchOptions& options, Executor& executor) {
  GenerateBatchResult result = Job(options, executor).run();
  if (result.is_interrupted || result.failed < result.prompts) return result;
  const Json& error = result.document.at("first_error");
  const ErrorCategory category = category_of(error);
  const auto throw_it = [&] {
    throw Error(category, concat("All ", result.prompts,
                                 " prompts failed; the first: ", error.value("message", "")));
  };
  if (category == ErrorCategory::Internal) blame_weights({&options.defaults.model, 1}, throw_it);
  throw_it();
  return result;
}

}  // namespace hone::app
