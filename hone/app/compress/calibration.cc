// SPDX-License-Identifier: Apache-2.0
#include "hone/app/compress/calibration.h"

#include <algorithm>
#include <memory>
#include <unordered_set>

#include "hone/app/eval_windows.h"
#include "hone/core/check.h"
#include "hone/core/file/sha256.h"
#include "hone/core/log.h"
#include "hone/core/machine/trace.h"
#include "hone/core/progress.h"
#include "hone/data/text_source.h"
#include "hone/infer/engine.h"

namespace hone::app {
namespace {

using text::TokenId;

constexpr std::size_t kRun = 32;  // tokens whose repetition tells that texts overlap
constexpr Index kFewTokens = 512;
constexpr double kMostShared = 0.01;  // of the runs

Json describe(const CalibrationText& text, const std::string& source) {
  std::vector<TokenId> all;
  for (const auto& one : text.texts) all.insert(all.end(), one.begin(), one.end());
  return {{"source", source},
          {"tokens", all.size()},
          {"texts", text.texts.size()},
          {"sha256", sha256_hex(std::as_bytes(std::span(all)))}};
}

// Calls visit(hash) for each run of kRun ids.
template <class Visit>
void for_runs(std::span<const TokenId> ids, const Visit& visit) {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;
  std::uint64_t power = 1, hash = 0;
  for (std::size_t i = 0; i < kRun; ++i) power *= kFactor;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    hash = hash * kFactor + static_cast<std::uint64_t>(ids[i]) + 1;
    if (i >= kRun) hash -= power * (static_cast<std::uint64_t>(ids[i - kRun]) + 1);
    if (i + 1 >= kRun) visit(hash);
  }
}

void check_overlap(const CalibrationText& text, const std::string& name,
                   const text::Tokenizer& tokenizer, std::span<const std::string> evaluation) {
  std::unordered_set<std::uint64_t> runs;
  for_runs(encode_for_eval(tokenizer, evaluation).ids,
           [&](std::uint64_t hash) { runs.insert(hash); });
  Index all = 0, shared = 0;
  for (const auto& one : text.texts) {
    for_runs(one, [&](std::uint64_t hash) {
      ++all;
      shared += runs.contains(hash) ? 1 : 0;
    });
  }
  const double share = all > 0 ? static_cast<double>(shared) / static_cast<double>(all) : 0;
  if (share > kMostShared) {
    fail_argument(name,
                  concat("The calibration text shares ", shared, " of its ", all, " runs of ", kRun,
                         " tokens with the text of the quality card. Choose another text for "
                         "one of them."));
  }
}

// At most `limit` tokens of the stream in texts of `window`, spread evenly over it.
std::vector<std::vector<TokenId>> spread_texts(std::span<const TokenId> ids, Index window,
                                               Index limit, std::optional<TokenId> start) {
  const Index own = window - (start ? 1 : 0);
  const Index whole = std::max<Index>(1, std::ssize(ids) / own);
  const Index count = std::clamp<Index>(limit / window, 1, whole);
  std::vector<std::vector<TokenId>> texts;
  for (Index i = 0; i < count; ++i) {
    const auto part = ids.subspan(static_cast<std::size_t>(i * whole / count * own));
    std::vector<TokenId> text;
    if (start) text.push_back(*start);
    const std::size_t size =
        std::min({part.size(), static_cast<std::size_t>(own),
                  static_cast<std::size_t>(std::max<Index>(limit - (start ? 1 : 0), 1))});
    text.insert(text.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(size));
    texts.push_back(std::move(text));
  }
  return texts;
}

// What a text that the model writes begins with.
TokenId first_token(const text::Tokenizer& tokenizer) {
  if (const auto start = window_start(tokenizer)) return *start;
  if (const auto bos = tokenizer.bos()) return *bos;
  if (const auto eos = tokenizer.eos()) return *eos;
  return 0;
}

}  // namespace

CalibrationText read_calibration(const compress::Recipe& recipe, const model_io::ModelFile& model,
                                 std::span<const std::string> evaluation) {
  const text::Tokenizer& tokenizer = *model.tokenizer();
  const Index window = std::min(recipe.calib_window, model.architecture().context);
  data::TextCorpus corpus = data::load_text(recipe.calib_data);
  const text::TokenStream stream = encode_for_eval(tokenizer, corpus.train);
  if (std::ssize(stream.ids) < 2)
    fail_corrupt(recipe.calib_data, "a calibration text of at least 2 tokens",
                 concat(stream.ids.size()));
  CalibrationText out;
  out.texts = spread_texts(stream.ids, window, recipe.calib_tokens, window_start(tokenizer));
  Index tokens = 0;
  for (const auto& text : out.texts) tokens += std::ssize(text);
  if (tokens < kFewTokens)
    log_warning(concat(recipe.calib_data, ": a calibration text of only ", tokens,
                       " tokens says little about the inputs of layers; use some thousands"));
  check_overlap(out, recipe.calib_data, tokenizer, evaluation);
  out.held_out = std::move(corpus.held_out);
  out.about = describe(out, recipe.calib_data);
  return out;
}

CalibrationText write_calibration(const std::filesystem::path& model,
                                  const std::filesystem::path& tokenizer,
                                  const compress::Recipe& recipe, Executor& executor,
                                  std::stop_token stop) {
  HONE_TRACE_ZONE("write calibration text", {"tokens", recipe.calib_tokens});
  infer::EngineOptions options;
  options.executor = &executor;
  options.tokenizer = tokenizer;
  options.need_tokenizer = false;
  const Index window = recipe.calib_window;
  const auto engine = infer::Engine::open_or_throw(model, options);
  const Index length = std::min({window, recipe.calib_tokens, engine->info().context});
  const Index count = std::max<Index>(1, recipe.calib_tokens / length);
  const TokenId start = engine->has_tokenizer() ? first_token(engine->tokenizer()) : 0;
  Progress progress("writing the calibration text", count * length, "tokens");
  CalibrationText out;
  Index written = 0;
  std::vector<std::shared_ptr<infer::CollectSink>> running;
  const auto has_ended = [](const auto& sink) { return sink->is_finished(); };
  for (Index begun = 0; begun < count || !running.empty();) {
    if (stop.stop_requested())
      throw Error(ErrorCategory::Cancelled, "[compress] The run was interrupted.");
    while (begun < count && std::ssize(running) < options.max_sequences) {
      infer::Request request{.tokens = {start}, .ignore_eos = true, .max_tokens = length - 1};
      request.sampling.seed = static_cast<std::uint64_t>(recipe.calib_seed);
      request.sampling.choice = static_cast<std::uint32_t>(begun++);
      running.push_back(std::make_shared<infer::CollectSink>([&](const infer::Event& event) {
        written += event.token ? 1 : 0;
        return true;
      }));
      engine->submit(std::move(request), running.back());
    }
    engine->step();
    progress.update(written);
    for (const auto& sink : running) {
      if (!has_ended(sink)) continue;
      sink->check();
      out.texts.push_back({start});
      out.texts.back().insert(out.texts.back().end(), sink->tokens.begin(), sink->tokens.end());
    }
    std::erase_if(running, has_ended);
  }
  out.about = describe(out, concat("written by the model, seed ", recipe.calib_seed));
  return out;
}

}  // namespace hone::app
