// SPDX-License-Identifier: Apache-2.0
#include "hone/app/eval_lm.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <utility>

#include "hone/app/blame_weights.h"
#include "hone/app/eval_windows.h"
#include "hone/app/loaded_weights.h"
#include "hone/core/check.h"
#include "hone/core/clock.h"
#include "hone/core/progress.h"
#include "hone/core/trace.h"
#include "hone/data/text_source.h"
#include "hone/model_io/model_file.h"

namespace hone::app {
namespace {

using infer::Engine;
using infer::TokenId;

constexpr Index kMaxWindow = 1024;

infer::ModelHeader open(const std::filesystem::path& path, const EvalOptions& options,
                        infer::WeightFormat format, Executor& executor) {
  infer::EngineOptions engine;
  engine.executor = &executor;
  engine.tokenizer = options.tokenizer;
  engine.need_tokenizer = !options.token_ids.has_value();
  engine.kv = options.kv;
  engine.activations = options.activations;
  engine.weights = {.format = format, .pack_cache = options.weights.pack_cache};
  return infer::ModelHeader::open_or_throw(path, engine);
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
  const Index window = options.window != 0 ? options.window : std::min(context, kMaxWindow);
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

// The logits of a whole window in the order of positions.
class WindowLogits {
 public:
  void run(Engine& engine, std::span<const TokenId> window) {
    values_.clear();
    engine.score(window, {.on_logits = [this](Index, Index, std::span<const float> logits) {
                   values_.insert(values_.end(), logits.begin(), logits.end());
                 }});
  }
  std::span<const float> row(Index index, Index vocab) const {
    return std::span(values_).subspan(static_cast<std::size_t>(index * vocab),
                                      static_cast<std::size_t>(vocab));
  }

 private:
  std::vector<float> values_;
};

// Adds every predicted token of one window.
void add_window(Engine& model, Engine* baseline, std::span<const TokenId> window,
                WindowLogits& reference, tune::QualityAccumulator& quality) {
  HONE_TRACE_ZONE("window", {"tokens", window.size()});
  if (baseline != nullptr) reference.run(*baseline, window);
  const Index vocab = model.info().architecture.vocab_size;
  model.score(window, {.on_logits = [&](Index first, Index rows, std::span<const float> logits) {
                HONE_TRACE_ZONE("compare logits", {"rows", rows}, {"vocab", vocab});
                for (Index row = 0; row < rows; ++row) {
                  const TokenId target = window[static_cast<std::size_t>(first + row)];
                  const auto line = logits.subspan(static_cast<std::size_t>(row * vocab),
                                                   static_cast<std::size_t>(vocab));
                  if (baseline != nullptr) {
                    quality.add(line, reference.row(first + row - 1, vocab), target);
                  } else {
                    quality.add(line, target);
                  }
                }
              }});
}

// Adds all windows. Returns the number of bytes of the predicted tokens.
Index add_windows(Engine& model, Engine* baseline, const std::vector<EvalWindow>& windows,
                  std::span<const TokenId> ids, const std::function<bool()>& cancelled,
                  tune::QualityAccumulator& quality) {
  const std::vector<Index> bytes = token_bytes(model, ids);
  WindowLogits reference;
  Progress progress("evaluating", static_cast<Index>(ids.size()), "tokens");
  Index predicted = 0;
  for (const EvalWindow& window : windows) {
    if (cancelled && cancelled()) {
      throw Error(ErrorCategory::Cancelled, "the evaluation was interrupted");
    }
    add_window(model, baseline, window.tokens, reference, quality);
    const auto first = bytes.begin() + window.first_target;
    const auto last = first + static_cast<std::ptrdiff_t>(window.tokens.size()) - 1;
    predicted = std::accumulate(first, last, predicted);
    progress.update(last - bytes.begin());
  }
  return predicted;
}

}  // namespace

std::vector<std::string> read_eval_text(const std::filesystem::path& path) {
  std::string text = data::read_utf8_file(path);
  if (text.empty()) fail_corrupt(path.string(), "There is no text.");
  return {std::move(text)};
}

void check_language_model(const std::filesystem::path& model,
                          const std::filesystem::path& tokenizer) {
  model_io::open_model_or_throw(model, {.tokenizer = tokenizer, .need_tokenizer = false});
}

EvalResult evaluate(const EvalOptions& options, Executor& executor) {
  const std::int64_t begin = steady_clock().now_ns();
  const infer::WeightFormat format = options.weights.format;
  infer::ModelHeader header = open(options.model, options, format, executor);
  std::optional<infer::ModelHeader> other;
  if (!options.baseline.empty()) {
    other = open(options.baseline, options, infer::WeightFormat::File, executor);
  }
  const EvalText text = read_text(header, other, options);
  const Index context = std::min(header.context(), other ? other->context() : header.context());
  // Whatever is wrong is found before the weights are read.
  std::vector<EvalWindow> windows = cut_text(text, choose_window(options, context), options);
  const auto model = Engine::load(std::move(header));
  log_loaded(model->info());
  std::unique_ptr<Engine> baseline;
  if (other) baseline = Engine::load(*std::move(other));

  EvalResult result;
  if (format != infer::WeightFormat::File) result.weights = weights_json(model->info(), format);
  const Index held = std::min(model->info().context, baseline ? baseline->info().context : context);
  result.window = choose_window(options, held);
  if (held < context) windows = cut_text(text, result.window, options);  // a short KV cache
  result.windows = static_cast<Index>(windows.size());

  tune::QualityAccumulator quality;
  const std::array suspects{options.baseline, options.model};
  blame_weights(suspects, [&] {
    result.card = quality.finish(
        add_windows(*model, baseline.get(), windows, text.stream.ids, options.cancelled, quality));
  });
  result.seconds = seconds_between(begin, steady_clock().now_ns());
  return result;
}

Json EvalResult::document() const {
  Json json = tune::to_json(card);
  json["window"] = window;
  json["windows"] = windows;
  json["seconds"] = seconds;
  if (!weights.is_null()) json["weights"] = weights;
  return json;
}

}  // namespace hone::app
