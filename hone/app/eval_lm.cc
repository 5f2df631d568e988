// SPDX-License-Identifier: Apache-2.0
#include "hone/app/eval_lm.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "hone/app/blame_weights.h"
#include "hone/app/eval_windows.h"
#include "hone/app/loaded_weights.h"
#include "hone/core/check.h"
#include "hone/core/machine/clock.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"
#include "hone/data/text_source.h"
#include "hone/kernels/norm/token_scores.h"
#include "hone/model_io/model_file.h"

namespace hone::app {
namespace {

using infer::Engine;
using infer::TokenId;

const Clock& clock_of(const EvalOptions& options) {
  return options.clock != nullptr ? *options.clock : steady_clock();
}

std::optional<TokenId> start_of(const infer::ModelHeader& model) {
  return model.has_tokenizer() ? window_start(model.tokenizer()) : std::nullopt;
}

// The tokens of the text without BOS.
text::TokenStream read_stream(const infer::ModelHeader& model, const EvalOptions& options) {
  if (!options.token_ids) return encode_for_eval(model.tokenizer(), options.documents);
  text::TokenStream stream;
  const std::span<const TokenId> ids = *options.token_ids;
  const auto bos = start_of(model);
  stream.add_document(bos && !ids.empty() && ids.front() == *bos ? ids.subspan(1) : ids);
  return stream;
}

// The number of UTF-8 bytes of each token; 0 if unknown. A dummy space that the tokenizer adds in
// front of a text does not count.
std::vector<Index> token_bytes(const Engine& engine, std::span<const TokenId> ids) {
  std::vector<Index> bytes(ids.size());
  if (!engine.has_tokenizer()) return bytes;
  const text::Tokenizer& tokenizer = engine.tokenizer();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= tokenizer.vocab_size() || tokenizer.is_control(ids[i])) continue;
    const std::string piece =
        i == 0 ? tokenizer.decode(ids.first(1)) : tokenizer.piece_bytes(ids[i]);
    bytes[i] = static_cast<Index>(piece.size());
  }
  return bytes;
}

void check_same_ids(const infer::ModelHeader& model, const infer::ModelHeader& baseline,
                    const EvalOptions& options, std::span<const TokenId> ids) {
  HONE_CHECK(baseline.vocab_size() == model.vocab_size(), "eval",
             concat("a baseline with a vocabulary of ", model.vocab_size()), baseline.vocab_size());
  HONE_REQUIRE(options.token_ids || std::ranges::equal(read_stream(baseline, options).ids, ids),
               "eval", "The tokenizer of the baseline yields other ids for this text.");
}

// The tokens to predict.
struct EvalText {
  text::TokenStream stream;
  std::optional<TokenId> start;  // that of every window
  Index found = 0;               // tokens, before the limit
};

EvalText read_text(const infer::ModelHeader& model,
                   const std::optional<infer::ModelHeader>& baseline, const EvalOptions& options) {
  EvalText text{.stream = read_stream(model, options), .start = start_of(model)};
  if (baseline) check_same_ids(model, *baseline, options, text.stream.ids);
  text.found = std::ssize(text.stream.ids);
  if (options.max_tokens > 0) text.stream.cut(options.max_tokens);
  return text;
}

Index choose_window(const EvalOptions& options, Index context) {
  const Index window = options.window != 0 ? options.window : std::min(context, text::kEvalWindow);
  HONE_CHECK(window >= 2 && window <= context, "window", concat("2 to ", context, " tokens"),
             window);
  return window;
}

std::vector<EvalWindow> cut_text(const EvalText& text, Index window, const EvalOptions& options) {
  std::vector<EvalWindow> windows = make_eval_windows(text.stream, window, text.start);
  if (windows.empty() && std::ssize(text.stream.ids) == text.found) {
    fail_corrupt(options.data_name,
                 concat("There is no token to predict among ", text.found, " tokens."));
  }
  HONE_REQUIRE(!windows.empty(), "max_tokens",
               concat("There is no token to predict within ", options.max_tokens, " tokens."));
  return windows;
}

// Shows the windows that are done, and of the next one the tokens that each model has read.
class EvalProgress {
 public:
  EvalProgress(std::size_t models, const Clock& clock) : clock_(clock), read_(models) {}
  void begin(Index tokens) { shown_.emplace("evaluating", tokens, "tokens", clock_); }
  // To be told of all tokens that a model has computed.
  std::function<void(Index)> listener(std::size_t model) {
    return [this, model](Index tokens) {
      read_[model] = tokens;
      Index share = 0;
      for (const Index read : read_) share += std::max<Index>(0, read - read_before_);
      if (shown_) shown_->update(done_ + share / std::ssize(read_));
    };
  }
  // `done` tokens of the text are behind a window of `rows` tokens to read.
  void end_window(Index rows, Index done) {
    read_before_ += rows;
    done_ = done;
    shown_->update(done);
  }

 private:
  const Clock& clock_;
  std::vector<Index> read_;
  Index read_before_ = 0, done_ = 0;
  std::optional<Progress> shown_;
};

// The models of an evaluation, of which at first only the headers are read, and their scores.
class Evaluation {
 public:
  Evaluation(const EvalOptions& options, Executor& executor)
      : options_(options),
        executor_(executor),
        progress_(options.baseline.empty() ? 1 : 2, clock_of(options)),
        header_(open(options.model, options.weights.format, 0)) {
    if (!options.baseline.empty()) {
      other_ = open(options.baseline, infer::WeightFormat::File, 1);
    }
    text_ = read_text(*header_, other_, options);
    context_ = other_ ? std::min(header_->context(), other_->context()) : header_->context();
  }

  // Reads the weights.
  void load();
  const infer::ModelInfo& info() const { return model_->info(); }
  // Tokens that both models can read; once they are loaded, also with the memory that is free.
  Index context() const { return context_; }
  std::vector<EvalWindow> cut_windows(Index window) const {
    return cut_text(text_, window, options_);
  }
  compress::QualityCard run(const std::vector<EvalWindow>& windows);

 private:
  infer::ModelHeader open(const std::filesystem::path& path, infer::WeightFormat format,
                          std::size_t model);
  void add_window(std::span<const TokenId> window);
  void compare_rows(const infer::HiddenStates& states, const infer::HiddenStates& reference,
                    Index first, std::span<const TokenId> targets);

  const EvalOptions& options_;
  Executor& executor_;
  EvalProgress progress_;
  std::optional<infer::ModelHeader> header_, other_;  // until load()
  EvalText text_;
  Index context_ = 0;
  std::unique_ptr<Engine> model_, baseline_;  // the second may be null
  compress::QualityAccumulator quality_;
};

infer::ModelHeader Evaluation::open(const std::filesystem::path& path, infer::WeightFormat format,
                                    std::size_t model) {
  infer::EngineOptions engine;
  engine.executor = &executor_;
  engine.tokenizer = options_.tokenizer;
  engine.need_tokenizer = !options_.token_ids.has_value();
  engine.kv = options_.kv;
  engine.activations = options_.activations;
  engine.weights = {.format = format, .pack_cache = options_.weights.pack_cache};
  engine.on_progress = progress_.listener(model);
  return infer::ModelHeader::open_or_throw(path, engine);
}

void Evaluation::load() {
  model_ = Engine::load(*std::move(header_));
  log_loaded(model_->info());
  context_ = std::min(context_, model_->info().context);
  if (!other_) return;
  baseline_ = Engine::load(*std::move(other_));
  context_ = std::min(context_, baseline_->info().context);
}

compress::QualityCard Evaluation::run(const std::vector<EvalWindow>& windows) {
  const std::vector<Index> bytes = token_bytes(*model_, text_.stream.ids);
  progress_.begin(std::ssize(bytes));
  Index predicted = 0;
  for (const EvalWindow& window : windows) {
    if (options_.stop.stop_requested()) {
      throw Error(ErrorCategory::Cancelled, "the evaluation was interrupted");
    }
    add_window(window.tokens);
    const Index rows = std::ssize(window.tokens) - 1;
    const auto first = bytes.begin() + window.first_target, last = first + rows;
    predicted = std::accumulate(first, last, predicted);
    progress_.end_window(rows, last - bytes.begin());
  }
  return quality_.finish(predicted);
}

// Adds every predicted token of one window, some rows of logits at a time.
void Evaluation::add_window(std::span<const TokenId> window) {
  HONE_TRACE_ZONE("window", {"tokens", window.size()});
  if (baseline_ == nullptr) {
    for (const double score : model_->score(window).logprobs) quality_.add(score);
    return;
  }
  const infer::HiddenStates reference = baseline_->read(window), states = model_->read(window);
  const Index most = std::min(model_->logit_rows(), baseline_->logit_rows());
  for (Index first = 0; first < states.rows; first += most) {
    const auto rows = static_cast<std::size_t>(std::min(most, states.rows - first));
    compare_rows(states, reference, first,
                 window.subspan(static_cast<std::size_t>(first) + 1, rows));
  }
}

void Evaluation::compare_rows(const infer::HiddenStates& states,
                              const infer::HiddenStates& reference, Index first,
                              std::span<const TokenId> targets) {
  const Index rows = std::ssize(targets);
  std::vector<kernels::TokenPair> pairs(targets.size());
  kernels::compare_tokens({.rows = rows,
                           .vocab = info().architecture.vocab_size,
                           .logits = model_->logits(states, first, rows).data(),
                           .baseline = baseline_->logits(reference, first, rows).data(),
                           .targets = targets.data(),
                           .pairs = pairs.data()},
                          executor_);
  for (const kernels::TokenPair& pair : pairs) {
    quality_.add({.log_probability = pair.log_probability,
                  .baseline_log_probability = pair.baseline_log_probability,
                  .kl = pair.kl,
                  .same_top = pair.same_top});
  }
}

}  // namespace

std::vector<std::string> read_eval_text(const std::filesystem::path& path) {
  if (data::names_stories(path)) return data::load_text(path).held_out;
  std::string text = data::read_utf8_file(path);
  if (text.empty()) fail_corrupt(path.string(), "There is no text.");
  return {std::move(text)};
}

void check_language_model(const std::filesystem::path& model,
                          const std::filesystem::path& tokenizer) {
  model_io::open_model_or_throw(model, {.tokenizer = tokenizer, .need_tokenizer = false});
}

EvalResult evaluate(const EvalOptions& options, Executor& executor) {
  const Clock& clock = clock_of(options);
  const TimeNs begin = clock.now_ns();
  const infer::WeightFormat format = options.weights.format;
  Evaluation evaluation(options, executor);
  const Index context = evaluation.context();
  // Whatever is wrong is found before the weights are read.
  std::vector<EvalWindow> windows = evaluation.cut_windows(choose_window(options, context));
  evaluation.load();

  EvalResult result;
  if (format != infer::WeightFormat::File) {
    result.weights = weights_json(evaluation.info(), format);
  }
  const Index held = evaluation.context();
  result.window = choose_window(options, held);
  if (held < context) windows = evaluation.cut_windows(result.window);  // a short KV cache
  result.windows = static_cast<Index>(windows.size());
  const std::array suspects{options.baseline, options.model};
  blame_weights(suspects, [&] { result.card = evaluation.run(windows); });
  result.seconds = seconds_between(begin, clock.now_ns());
  return result;
}

Json EvalResult::document() const {
  Json json = compress::to_json(card);
  json["window"] = window;
  json["windows"] = windows;
  json["seconds"] = seconds;
  if (!weights.is_null()) json["weights"] = weights;
  return json;
}

}  // namespace hone::app
