// SPDX-License-Identifier: Apache-2.0
#include "hone/app/eval_lm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numbers>
#include <regex>
#include <string>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "tests/support/test_data.h"
#include "tests/support/ticking_clock.h"

namespace hone::app {
namespace {

using infer::TokenId;

EvalOptions eval_of_stories(const std::filesystem::path& model) {
  EvalOptions options;
  options.model = model;
  options.tokenizer = model.parent_path() / "tok512.bin";
  options.kv = infer::KvDtype::Float32;
  return options;
}

TEST(Eval, equals_the_sum_of_scores_over_windows) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  EvalOptions options = eval_of_stories(model);
  const std::string text =
      "Once upon a time, there was a little girl named Lily. She loved to play outside.";
  options.documents = {text};
  options.window = 16;
  const EvalResult result = evaluate(options, serial_executor());

  infer::EngineOptions engine_options;
  engine_options.executor = &serial_executor();
  engine_options.tokenizer = options.tokenizer;
  engine_options.kv = infer::KvDtype::Float32;
  const auto engine = infer::Engine::open_or_throw(model, engine_options);
  const auto ids = engine->tokenizer().encode(text, {.add_bos = false});
  double sum = 0;
  for (std::size_t at = 0; at < ids.size(); at += 15) {
    std::vector<TokenId> window = {1};  // BOS
    window.insert(window.end(), ids.begin() + at, ids.begin() + std::min(ids.size(), at + 15));
    for (const double logprob : engine->score(window).logprobs) sum -= logprob;
  }
  EXPECT_EQ(result.card.tokens, static_cast<Index>(ids.size()));
  EXPECT_NEAR(result.card.nll, sum / static_cast<double>(ids.size()), 1e-6);
  // All text tokens are predicted, so the bytes are those of the text.
  EXPECT_EQ(result.card.bytes, static_cast<Index>(text.size()));
  EXPECT_NEAR(*result.card.bits_per_byte,
              sum / std::numbers::ln2 / static_cast<double>(text.size()), 1e-6);
  EXPECT_EQ(result.windows, 1 + (static_cast<Index>(ids.size()) - 1) / 15);
}

TEST(Eval, predicts_each_document_from_its_own_beginning) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  EvalOptions options = eval_of_stories(model);
  const std::vector<std::string> texts = {"Once upon a time", "Lily loved to play outside."};
  double nats = 0;
  Index tokens = 0;
  for (const std::string& text : texts) {
    options.documents = {text};
    const EvalResult alone = evaluate(options, serial_executor());
    nats += alone.card.nll * static_cast<double>(alone.card.tokens);
    tokens += alone.card.tokens;
  }
  options.documents = texts;
  const EvalResult both = evaluate(options, serial_executor());
  EXPECT_EQ(both.card.tokens, tokens);
  EXPECT_NEAR(both.card.nll, nats / static_cast<double>(tokens), 1e-6);
}

TEST(Eval, a_model_against_itself_agrees_everywhere) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(text, "text/tinyshakespeare.txt");
  EvalOptions options = eval_of_stories(model);
  options.baseline = model;
  options.documents = {read_text_file(text).substr(0, 4000)};
  options.max_tokens = 600;
  const EvalResult result = evaluate(options, serial_executor());
  EXPECT_EQ(result.card.tokens, 600);
  ASSERT_TRUE(result.card.comparison.has_value());
  EXPECT_EQ(result.card.comparison->top1_agreement.value, 1);
  EXPECT_EQ(result.card.comparison->perplexity_ratio.value, 1);
  EXPECT_NEAR(result.card.comparison->kl_p99, 0, 1e-12);
  EXPECT_TRUE(result.document().contains("ppl_ratio_ci"));
}

TEST(Eval, f16_cache_stays_close_to_f32) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(text, "text/tinyshakespeare.txt");
  EvalOptions options = eval_of_stories(model);
  options.documents = {read_text_file(text).substr(0, 6000)};
  options.max_tokens = 1500;
  const double wide = evaluate(options, serial_executor()).card.nll;
  options.kv = infer::KvDtype::Float16;
  const double narrow = evaluate(options, serial_executor()).card.nll;
  EXPECT_NE(narrow, wide);
  EXPECT_NEAR(narrow, wide, 1e-3);
}

TEST(Eval, token_ids_equal_the_text_they_come_from) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  EvalOptions options = eval_of_stories(model);
  options.documents = {"Once upon a time"};
  const double from_text = evaluate(options, serial_executor()).card.nll;
  options.documents.clear();
  options.token_ids = std::vector<TokenId>{1, 403, 407, 261, 378};
  EXPECT_EQ(evaluate(options, serial_executor()).card.nll, from_text);
}

std::string stderr_of(const std::function<void()>& call) {
  testing::internal::CaptureStderr();
  call();
  std::fflush(stderr);
  return testing::internal::GetCapturedStderr();
}

TEST(Eval, shows_within_a_window_how_far_it_is) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(text, "text/tinyshakespeare.txt");
  EvalOptions options = eval_of_stories(model);
  options.documents = {read_text_file(text).substr(0, 4000)};
  options.max_tokens = 400;
  for (const bool has_baseline : {false, true}) {
    if (has_baseline) options.baseline = model;
    const test::TickingClock slow(0.5), fast(1e-6);
    const auto run = [&] { evaluate(options, serial_executor()); };
    options.clock = &fast;
    EXPECT_EQ(stderr_of(run), "");
    options.clock = &slow;
    const std::string shown = stderr_of(run);
    std::smatch found;
    ASSERT_TRUE(std::regex_search(shown, found, std::regex("evaluating (\\d+)/400 tokens, ")))
        << shown;
    EXPECT_LT(std::stoi(found[1]), 400);
    EXPECT_NE(shown.find("evaluating 400/400 tokens, "), std::string::npos) << shown;
    const LogLevel before = log_level();
    set_log_level(LogLevel::Warning);
    EXPECT_EQ(stderr_of(run), "");
    set_log_level(before);
  }
}

TEST(Eval, refuses_what_it_cannot_measure) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  EvalOptions options = eval_of_stories(model);
  EXPECT_THROW(evaluate(options, serial_executor()), Error);
  options.documents = {"Once upon a time"};
  options.window = 100000;
  EXPECT_THROW(evaluate(options, serial_executor()), Error);
}

}  // namespace
}  // namespace hone::app
