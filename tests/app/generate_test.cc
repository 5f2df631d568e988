// SPDX-License-Identifier: Apache-2.0
// Every option of `hone generate` changes something that these tests see.
#include "hone/app/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <regex>
#include <string>

#include "hone/core/error.h"
#include "hone/core/log.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"
#include "tests/support/ticking_clock.h"

namespace hone::app {
namespace {

GenerateOptions text_of_stories(const std::filesystem::path& model,
                                std::string prompt = "Once upon a time") {
  GenerateOptions options;
  options.model = model;
  options.engine.tokenizer = model.parent_path() / "tok512.bin";
  options.prompt = std::move(prompt);
  options.request.max_tokens = 24;
  options.request.ignore_eos = true;
  options.sampling.temperature = 0.0f;
  return options;
}

GenerateResult run(const GenerateOptions& options) { return generate(options, serial_executor()); }

TEST(Generate, document_has_the_promised_fields) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const GenerateResult result = run(text_of_stories(model));
  const Json& document = result.document;
  EXPECT_EQ(document["text"], result.text);
  EXPECT_EQ(document["tokens"].size(), 24u);
  EXPECT_EQ(document["finish_reason"], "length");
  for (const char* key : {"prompt_tokens", "prompt_per_s", "gen_tokens", "gen_per_s", "ttft_ms"}) {
    EXPECT_TRUE(document["timings"].contains(key)) << key;
  }
  EXPECT_EQ(document["kv"]["blocks"], 1);
  EXPECT_EQ(document["kv"]["bytes"].get<Index>(),
            32 * document["kv"]["bytes_per_token"].get<Index>());
  EXPECT_TRUE(document["isa"].is_string());
  EXPECT_EQ(document["threads"], 1);
  EXPECT_FALSE(document.contains("logprobs"));
}

TEST(Generate, a_prompt_that_takes_long_shows_how_far_it_is) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  GenerateOptions options = text_of_stories(model);
  options.prompt_ids.emplace(200, 403);
  options.engine.prefill_chunk = 64;
  const test::TickingClock slow(0.5), fast(1e-6);
  const auto shown = [&](const Clock& clock) {
    options.engine.clock = &clock;
    testing::internal::CaptureStderr();
    run(options);
    std::fflush(stderr);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(shown(fast), "");
  const std::string text = shown(slow);
  std::smatch found;
  ASSERT_TRUE(std::regex_search(text, found, std::regex("reading the prompt (\\d+)/200 tokens, ")))
      << text;
  EXPECT_LT(std::stoi(found[1]), 200);
  EXPECT_NE(text.find("reading the prompt 200/200 tokens, "), std::string::npos) << text;
  const LogLevel before = log_level();
  set_log_level(LogLevel::Warning);
  EXPECT_EQ(shown(slow), "");
  set_log_level(before);
}

TEST(Generate, text_streams_in_pieces_that_join_to_the_result) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  GenerateOptions options = text_of_stories(model);
  std::string streamed;
  int pieces = 0;
  options.on_text = [&](std::string_view text) {
    streamed += text;
    ++pieces;
  };
  options.echo = true;
  const GenerateResult result = run(options);
  EXPECT_EQ(streamed, result.text);
  EXPECT_TRUE(result.text.starts_with("Once upon a time, there was"));
  EXPECT_GT(pieces, 10);
}

TEST(Generate, prompt_ids_no_bos_and_context) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const GenerateResult text = run(text_of_stories(model));
  GenerateOptions options = text_of_stories(model, "");
  options.prompt_ids = std::vector<infer::TokenId>{1, 403, 407, 261, 378};
  EXPECT_EQ(run(options).tokens, text.tokens);
  options.prompt_ids = std::nullopt;
  options.prompt = "Once upon a time";
  options.add_bos = false;
  EXPECT_EQ(run(options).timings.prompt_tokens, text.timings.prompt_tokens - 1);
  options.engine.context = 16;
  EXPECT_EQ(run(options).tokens.size(), 12u);  // 4 of the prompt
}

TEST(Generate, sampling_options_change_the_text) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  const auto greedy = run(text_of_stories(model)).tokens;
  GenerateOptions options = text_of_stories(model);
  options.sampling.temperature = 1.5f;
  options.request.sampling.seed = 3;
  const auto hot = run(options).tokens;
  EXPECT_NE(hot, greedy);
  options.request.sampling.seed = 4;
  EXPECT_NE(run(options).tokens, hot);
  options.request.sampling.seed = 3;
  options.sampling.top_k = 1;
  EXPECT_EQ(run(options).tokens, greedy);
  options.sampling.top_k = 0;
  options.sampling.top_p = 1e-6f;
  EXPECT_EQ(run(options).tokens, greedy);
  options.sampling.top_p = 1.0f;
  options.sampling.min_p = 1.0f;
  EXPECT_EQ(run(options).tokens, greedy);
}

TEST(Generate, penalties_and_bias_change_the_text) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  GenerateOptions options = text_of_stories(model);
  options.request.max_tokens = 60;
  const auto greedy = run(options).tokens;
  options.sampling.repetition_penalty = 2.0f;
  EXPECT_NE(run(options).tokens, greedy);
  options.sampling.repetition_penalty.reset();
  options.request.sampling.presence_penalty = 2;
  EXPECT_NE(run(options).tokens, greedy);
  options.request.sampling.presence_penalty = 0;
  options.request.sampling.frequency_penalty = 2;
  EXPECT_NE(run(options).tokens, greedy);
  options.request.sampling.frequency_penalty = 0;
  options.request.sampling.logit_bias = {{greedy.front(), -100}};
  const auto biased = run(options).tokens;
  EXPECT_EQ(std::ranges::count(biased, greedy.front()), 0);
}

TEST(Generate, logprobs_list_the_alternatives) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  GenerateOptions options = text_of_stories(model);
  options.request.logprobs = 3;
  const Json rows = run(options).document["logprobs"];
  ASSERT_EQ(rows.size(), 24u);
  for (const Json& row : rows) {
    EXPECT_EQ(row["top"].size(), 3u);
    EXPECT_EQ(row["top"][0]["id"], row["id"]);  // greedy
    EXPECT_EQ(row["top"][0]["logprob"], row["logprob"]);
    EXPECT_LE(row["logprob"].get<double>(), 0);
    EXPECT_GE(row["top"][0]["logprob"].get<double>(), row["top"][2]["logprob"].get<double>());
  }
}

TEST(Generate, stop_strings_min_tokens_and_interruption_end_as_named) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  GenerateOptions options = text_of_stories(model);
  options.request.stop = {"girl"};
  const GenerateResult stopped = run(options);
  EXPECT_EQ(stopped.text, ", there was a little ");
  EXPECT_EQ(stopped.document["finish_reason"], "stop");
  const hone::test::StopFlag interrupted{true};
  options.stop = interrupted;
  const GenerateResult cancelled = run(options);
  EXPECT_EQ(cancelled.document["finish_reason"], "cancelled");
  EXPECT_TRUE(cancelled.tokens.empty());
  options.stop = {};
  options.request.min_tokens = 25;
  EXPECT_THROW(run(options), Error);
}

TEST(Generate, states_no_share_of_memory_bandwidth_for_weights_in_a_cache_but_the_reason) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  GenerateOptions options = text_of_stories(model);
  EXPECT_FALSE(run(options).document.contains("bw_share"));
  options.measure_share = true;
  const Json document = run(options).document;
  EXPECT_TRUE(document["bw_share"].is_null());
  EXPECT_THAT(document["no_bw_share"].get<std::string>(),
              testing::HasSubstr("times the last-level cache"));
}

TEST(Generate, cache_type_shows_in_its_bytes) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  GenerateOptions options = text_of_stories(model);
  const Index half = run(options).document["kv"]["bytes"];
  options.engine.kv = infer::KvDtype::Float32;
  EXPECT_EQ(run(options).document["kv"]["bytes"], 2 * half);
}

}  // namespace
}  // namespace hone::app
