// SPDX-License-Identifier: Apache-2.0
#include "hone/app/eval_lm.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/clock.h"
#include "hone/core/progress.h"

namespace hone::app {
namespace {

using infer::Engine;
using infer::TokenId;

constexpr Index kMostWindow = 1024;

std::unique_ptr<Engine> open(const std::filesystem::path& path, const EvalOptions& options,
                             Executor& executor) {
  infer::EngineOptions engine;
  engine.executor = &executor;
  engine.tokenizer = options.tokenizer;
  engine.need_tokenizer = !options.token_ids.has_value();
  engine.kv = options.kv;
  engine.activations = options.activations;
  return Engine::open_or_throw(path, engine);
}

std::optional<TokenId> window_start(const Engine& engine) {
  if (!engine.has_tokenizer() || !engine.tokenizer().adds_bos()) return std::nullopt;
  return engine.tokenizer().bos();
}

// Text tokens without BOS.
std::vector<TokenId> read_ids(const Engine& engine, const EvalOptions& options) {
  if (!options.token_ids) return engine.tokenizer().encode(options.text, {.add_bos = false});
  std::vector<TokenId> ids = *options.token_ids;
  const auto bos = window_start(engine);
  if (bos && !ids.empty() && ids.front() == *bos) ids.erase(ids.begin());
  return ids;
}

// UTF-8 bytes of each token, 0 where unknown. The dummy space that some tokenisers put in front of
// a text is not among them.
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

void check_same_ids(const Engine& model, const Engine& baseline, const EvalOptions& options,
                    std::span<const TokenId> ids) {
  const Index vocab = model.info().architecture.vocab_size;
  HONE_CHECK(baseline.info().architecture.vocab_size == vocab, "eval",
             concat("a baseline with ", vocab, " logits"), baseline.info().architecture.vocab_size);
  HONE_CHECK(options.token_ids || std::ranges::equal(read_ids(baseline, options), ids), "eval",
             "a baseline with the same tokeniser", "other ids for the same text");
}

// Logits of a whole window, in the order of positions.
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
  if (baseline != nullptr) reference.run(*baseline, window);
  const Index vocab = model.info().architecture.vocab_size;
  model.score(window, {.on_logits = [&](Index first, Index rows, std::span<const float> logits) {
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

// Every window in turn; returns the bytes of the predicted tokens.
Index add_windows(Engine& model, Engine* baseline, const std::vector<std::vector<TokenId>>& windows,
                  std::span<const TokenId> ids, tune::QualityAccumulator& quality) {
  const std::vector<Index> bytes = token_bytes(model, ids);
  const bool has_bos = window_start(model).has_value();
  WindowLogits reference;
  Progress progress("evaluating", static_cast<Index>(ids.size()), "tokens");
  Index predicted = 0, at = 0;
  for (const auto& window : windows) {
    add_window(model, baseline, window, reference, quality);
    const Index end = at + static_cast<Index>(window.size()) - (has_bos ? 1 : 0);
    for (at += has_bos ? 0 : 1; at < end; ++at) predicted += bytes[static_cast<std::size_t>(at)];
    progress.update(at);
  }
  return predicted;
}

}  // namespace

std::vector<std::vector<TokenId>> cut_windows(std::span<const TokenId> ids, Index window,
                                              std::optional<TokenId> bos) {
  const auto step = static_cast<std::size_t>(bos ? window - 1 : window);
  std::vector<std::vector<TokenId>> windows;
  for (std::size_t at = 0; at < ids.size(); at += step) {
    const auto part = ids.subspan(at, std::min(step, ids.size() - at));
    std::vector<TokenId> tokens;
    if (bos) tokens.push_back(*bos);
    tokens.insert(tokens.end(), part.begin(), part.end());
    if (tokens.size() >= 2) windows.push_back(std::move(tokens));
  }
  return windows;
}

EvalResult evaluate(const EvalOptions& options, Executor& executor) {
  const std::int64_t start = steady_clock().now_ns();
  const auto model = open(options.model, options, executor);
  std::vector<TokenId> ids = read_ids(*model, options);
  std::unique_ptr<Engine> baseline;
  Index context = model->info().context;
  if (!options.baseline.empty()) {
    baseline = open(options.baseline, options, executor);
    check_same_ids(*model, *baseline, options, ids);
    context = std::min(context, baseline->info().context);
  }
  if (options.max_tokens > 0 && static_cast<Index>(ids.size()) > options.max_tokens) {
    ids.resize(static_cast<std::size_t>(options.max_tokens));
  }
  EvalResult result;
  result.window = options.window > 0 ? options.window : std::min(context, kMostWindow);
  HONE_CHECK(result.window >= 2 && result.window <= context, "window",
             concat("2 to ", context, " tokens"), result.window);
  const auto windows = cut_windows(ids, result.window, window_start(*model));
  HONE_CHECK(!windows.empty(), "eval", "a text of at least 2 tokens", ids.size());
  result.windows = static_cast<Index>(windows.size());

  tune::QualityAccumulator quality;
  const Index bytes = add_windows(*model, baseline.get(), windows, ids, quality);
  result.card = quality.finish(bytes);
  result.seconds = seconds_between(start, steady_clock().now_ns());
  return result;
}

Json EvalResult::document() const {
  Json json = tune::to_json(card);
  json["window"] = window;
  json["windows"] = windows;
  json["seconds"] = seconds;
  return json;
}

}  // namespace hone::app
