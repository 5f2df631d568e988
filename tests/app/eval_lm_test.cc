// SPDX-License-Identifier: Apache-2.0
#include "hone/app/eval_lm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "hone/core/error.h"
#include "hone/core/file_io.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

using infer::TokenId;

EvalOptions stories(const std::filesystem::path& model) {
  EvalOptions options;
  options.model = model;
  options.tokenizer = model.parent_path() / "tok512.bin";
  options.kv = infer::KvDtype::Float32;
  return options;
}

TEST(CutWindows, each_window_starts_with_bos_and_every_other_token_is_predicted_once) {
  const std::vector<TokenId> ids = {10, 11, 12, 13, 14};
  EXPECT_EQ(cut_windows(ids, 3, 1),
            (std::vector<std::vector<TokenId>>{{1, 10, 11}, {1, 12, 13}, {1, 14}}));
  EXPECT_EQ(cut_windows(ids, 2, std::nullopt),
            (std::vector<std::vector<TokenId>>{{10, 11}, {12, 13}}));
}

TEST(Eval, equals_the_sum_of_scores_over_windows) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  EvalOptions options = stories(model);
  options.text = "Once upon a time, there was a little girl named Lily. She loved to play outside.";
  options.window = 16;
  const EvalResult result = evaluate(options, serial_executor());

  infer::EngineOptions engine_options;
  engine_options.executor = &serial_executor();
  engine_options.tokenizer = options.tokenizer;
  engine_options.kv = infer::KvDtype::Float32;
  const auto engine = infer::Engine::open_or_throw(model, engine_options);
  const auto ids = engine->tokenizer().encode(options.text, {.add_bos = false});
  double sum = 0;
  for (const auto& window : cut_windows(ids, 16, 1)) {
    for (const double logprob : engine->score(window).logprobs) sum -= logprob;
  }
  EXPECT_EQ(result.card.tokens, static_cast<Index>(ids.size()));
  EXPECT_NEAR(result.card.nll, sum / static_cast<double>(ids.size()), 1e-6);
  // All text tokens are predicted, so the bytes are those of the text.
  EXPECT_EQ(result.card.bytes, static_cast<Index>(options.text.size()));
  EXPECT_NEAR(*result.card.bits_per_byte,
              sum / std::numbers::ln2 / static_cast<double>(options.text.size()), 1e-6);
  EXPECT_EQ(result.windows, 1 + (static_cast<Index>(ids.size()) - 1) / 15);
}

TEST(Eval, a_model_against_itself_agrees_everywhere) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(text, "text/tinyshakespeare.txt");
  EvalOptions options = stories(model);
  options.baseline = model;
  options.text = read_text_file(text).substr(0, 4000);
  options.max_tokens = 600;
  const EvalResult result = evaluate(options, serial_executor());
  EXPECT_EQ(result.card.tokens, 600);
  ASSERT_TRUE(result.card.comparison.has_value());
  EXPECT_EQ(result.card.comparison->top1_agreement, 1);
  EXPECT_EQ(result.card.comparison->perplexity_ratio.value, 1);
  EXPECT_NEAR(result.card.comparison->kl_p99, 0, 1e-12);
  EXPECT_TRUE(result.document().contains("ppl_ratio_ci"));
}

TEST(Eval, f16_cache_stays_close_to_f32) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(text, "text/tinyshakespeare.txt");
  EvalOptions options = stories(model);
  options.text = read_text_file(text).substr(0, 6000);
  options.max_tokens = 1500;
  const double wide = evaluate(options, serial_executor()).card.nll;
  options.kv = infer::KvDtype::Float16;
  const double narrow = evaluate(options, serial_executor()).card.nll;
  EXPECT_NE(narrow, wide);
  EXPECT_NEAR(narrow, wide, 1e-3);
}

TEST(Eval, token_ids_equal_the_text_they_come_from) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  EvalOptions options = stories(model);
  options.text = "Once upon a time";
  const double from_text = evaluate(options, serial_executor()).card.nll;
  options.text.clear();
  options.token_ids = std::vector<TokenId>{1, 403, 407, 261, 378};
  EXPECT_EQ(evaluate(options, serial_executor()).card.nll, from_text);
}

TEST(Eval, refuses_what_it_cannot_measure) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  EvalOptions options = stories(model);
  EXPECT_THROW(evaluate(options, serial_executor()), Error);
  options.text = "Once upon a time";
  options.window = 100000;
  EXPECT_THROW(evaluate(options, serial_executor()), Error);
}

}  // namespace
}  // namespace hone::app
