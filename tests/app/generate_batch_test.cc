// SPDX-License-Identifier: Apache-2.0
#include "hone/app/generate_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/text/load_tokenizer.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

using hone::test::TinyModel;

class GenerateBatch : public testing::Test {
 protected:
  GenerateBatch() {
    const auto tokenizer = text::make_tokenizer(hone::test::tiny_sentencepiece(48));
    const TinyModel model(hone::test::tiny_architecture());
    write_hugging_face(folder_.path() / "hf", model.source(tokenizer.get()));
    options_.defaults.model = folder_.path() / "hf";
    options_.defaults.request.max_tokens = 8;
    options_.defaults.request.ignore_eos = true;
    options_.defaults.engine.max_sequences = 3;
    options_.prompts = folder_.path() / "prompts.jsonl";
    options_.on_line = [this](std::string_view line) {
      results_.push_back(parse_json(line, "result"));
    };
  }
  GenerateBatchResult run(const std::string& prompts) {
    write_text_file(options_.prompts, prompts);
    results_.clear();
    return generate_batch(options_, serial_executor());
  }
  std::vector<infer::TokenId> alone(const std::string& prompt,
                                    const infer::SamplingChoice& sampling, Index max_tokens,
                                    std::uint64_t seed = 0) const {
    GenerateOptions options = options_.defaults;
    options.prompt = prompt;
    options.sampling = sampling;
    options.request.max_tokens = max_tokens;
    options.request.sampling.seed = seed;
    return generate(options, serial_executor()).tokens;
  }

  hone::test::TemporaryFolder folder_;
  GenerateBatchOptions options_;
  std::vector<Json> results_;
};

TEST_F(GenerateBatch, each_line_is_answered_in_order_as_it_is_alone) {
  const auto result =
      run("{\"prompt\": \"a b\"}\n"
          "{\"prompt\": \"c\", \"id\": \"third\", \"max_tokens\": 20, \"temperature\": 0}\n"
          "\n"
          "{\"tokens\": [1, 5, 6], \"id\": 7, \"max_tokens\": 3}\n"
          "{\"prompt\": \"a b\", \"seed\": 9, \"top_k\": 20}\n"
          "{\"prompt\": \"d\", \"stop\": \"zzz\", \"logprobs\": 2}");
  ASSERT_EQ(results_.size(), 5u);
  EXPECT_EQ(result.prompts, 5);
  EXPECT_EQ(result.failed, 0);
  const std::vector<Json> ids{1, "third", 7, 5, 6};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(results_[i]["id"], ids[i]);
  EXPECT_EQ(results_[0]["tokens"], Json(alone("a b", {}, 8)));
  EXPECT_EQ(results_[1]["tokens"], Json(alone("c", {.temperature = 0.0f}, 20)));
  EXPECT_EQ(results_[2]["tokens"].size(), 3u);
  EXPECT_EQ(results_[3]["tokens"], Json(alone("a b", {.top_k = 20}, 8, 9)));
  EXPECT_EQ(results_[4]["logprobs"].size(), 8u);
  for (const Json& one : results_) {
    EXPECT_EQ(one["finish_reason"], "length");
    EXPECT_EQ(one["timings"]["gen_tokens"], one["tokens"].size());
    EXPECT_TRUE(one["text"].is_string());
    EXPECT_EQ(one.contains("logprobs"), one["id"] == 6);
  }
}

TEST_F(GenerateBatch, how_many_run_together_and_how_much_memory_they_have_changes_no_text) {
  std::string prompts;
  for (int i = 0; i < 40; ++i) {
    prompts += concat("{\"prompt\": \"", std::string(static_cast<std::size_t>(1 + i % 9), 'a'),
                      "\", \"seed\": ", i, ", \"max_tokens\": ", 1 + 13 * i % 50, "}\n");
  }
  const auto texts = [&](Index sequences, Index kv_bytes) {
    options_.defaults.engine.max_sequences = sequences;
    options_.defaults.engine.kv_bytes = kv_bytes;
    run(prompts);
    std::vector<Json> all;
    for (const Json& one : results_) all.push_back({one["id"], one["digest"], one["tokens"]});
    return all;
  };
  const auto expected = texts(1, 0);
  EXPECT_EQ(expected.size(), 40u);
  EXPECT_EQ(texts(7, 0), expected);
  EXPECT_EQ(texts(7, 60'000), expected);  // 8 KiB a block
}

TEST_F(GenerateBatch, a_line_that_fails_has_an_error_with_its_number_and_ends_nothing) {
  const std::string too_long(100, 'a');
  const std::vector<std::pair<std::string, std::string>> bad{
      {"{\"prompt\": ", "line 2"},
      {"[1]", "a JSON object"},
      {"{\"prompt\": \"a\", \"tempreature\": 1}", "Did you mean 'temperature'"},
      {"{\"prompt\": \"a\", \"top_k\": 1.5}", "a whole number"},
      {"{\"prompt\": \"a\", \"temperature\": 9}", "temperature"},
      {"{\"prompt\": \"a\", \"tokens\": [1]}", "either a prompt or tokens"},
      {"{\"id\": 4}", "either a prompt or tokens"},
      {"{\"prompt\": \"a\", \"id\": [1]}", "a string or a whole number"},
      {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "occurs twice"},
      {"{\"prompt\": \"" + too_long + "\"}", "context"},
      {"{\"tokens\": [1, 4000]}", "below 48"},
      {"{\"tokens\": [1, 99999999999]}", "within limits"},
      {"{\"tokens\": []}", "at least one token"},
      {"{\"prompt\": \"a\", \"ignore_eos\": false, \"json_schema\": {\"type\": \"nothing\"}}",
       "seven type names"},
      {"{\"prompt\": \"a\", \"stop\": [1]}", "a string"},
      {"{\"prompt\": \"a\", \"logit_bias\": {\"x\": 1}}", "token ids"},
      {"{\"prompt\": \"a\", \"timeout\": -1}", "timeout"},
      {"{\"prompt\": \"a\", \"seed\": -1}", "within limits"},
      {std::string(300, '['), "nested"}};
  for (const auto& [line, words] : bad) {
    const auto result = run("{\"prompt\": \"a\"}\n" + line + "\n{\"prompt\": \"b\"}\n");
    ASSERT_EQ(results_.size(), 3u);
    EXPECT_EQ(result.failed, 1) << line;
    EXPECT_EQ(results_[0]["tokens"].size(), 8u);
    EXPECT_EQ(results_[2]["tokens"].size(), 8u);
    const Json& failed = results_[1];
    EXPECT_EQ(failed["finish_reason"], "failed") << line;
    EXPECT_THAT(failed["error"]["message"].get<std::string>(), testing::HasSubstr(words));
    EXPECT_EQ(failed["id"], line.starts_with("{\"id\": 4") ? 4 : 2) << line;
  }
}

// Models may have more rows than their tokenizer has pieces.
TEST_F(GenerateBatch, rows_without_a_piece_have_no_text_and_fail_nothing) {
  const auto tokenizer = text::make_tokenizer(hone::test::tiny_sentencepiece(40));
  const TinyModel model(hone::test::tiny_architecture());
  write_hugging_face(folder_.path() / "padded", model.source(tokenizer.get()));
  options_.defaults.model = folder_.path() / "padded";
  options_.defaults.echo = true;
  options_.defaults.request.logprobs = 1;
  options_.defaults.request.sampling.logit_bias = {{.id = 45, .bias = 100}};
  const auto result = run("{\"tokens\": [1, 5, 44, 6]}");
  EXPECT_EQ(result.failed, 0);
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0]["tokens"], Json(std::vector<int>(8, 45)));
  EXPECT_EQ(results_[0]["text"], tokenizer->decode(std::vector<infer::TokenId>{1, 5, 6}));
  for (const Json& row : results_[0]["logprobs"]) EXPECT_TRUE(row["piece"].is_null());
  GenerateOptions alone = options_.defaults;
  alone.prompt_ids = std::vector<infer::TokenId>{1, 5, 44, 6};
  const Json document = generate(alone, serial_executor()).document;
  EXPECT_EQ(document["text"], results_[0]["text"]);
  EXPECT_TRUE(document["logprobs"][0]["piece"].is_null());
}

// The digest of a line holds what its text depends on: the exact rule and its draft model.
TEST_F(GenerateBatch, only_the_exact_rule_makes_results_depend_on_the_draft_model) {
  const auto digest = [&](const std::filesystem::path& draft, infer::SpecRule rule) {
    options_.defaults.engine.draft.model = draft;
    options_.defaults.request.spec.rule = rule;
    run("{\"prompt\": \"a\"}");
    return results_[0]["digest"];
  };
  using infer::SpecRule;
  const std::filesystem::path model = folder_.path() / "hf";
  const Json plain = digest({}, SpecRule::Exact);
  EXPECT_EQ(digest(model, SpecRule::Coupled), plain);
  EXPECT_NE(digest(model, SpecRule::Exact), plain);
}

TEST_F(GenerateBatch, if_every_line_fails_the_first_error_is_thrown) {
  try {
    run("{\"tokens\": [77]}\nx\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
    EXPECT_THAT(error.what(), testing::HasSubstr("All 2 prompts failed"));
  }
  EXPECT_EQ(results_.size(), 2u);
  EXPECT_THROW(run(""), Error);
  EXPECT_THROW(run("\n \n"), Error);
}

// A pipe whose next line depends on the result of the last one.
TEST_F(GenerateBatch, answers_a_stream_while_it_is_written) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  options_.prompts = concat("/dev/fd/", ends[0]);
  const std::string line = "{\"prompt\": \"a\"}\n";
  const auto send = [&] {
    ASSERT_EQ(::write(ends[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
  };
  int answered = 0;
  options_.on_line = [&](std::string_view) {
    if (++answered < 5) return send();
    ::close(ends[1]);
  };
  send();
  EXPECT_EQ(generate_batch(options_, serial_executor()).prompts, 5);
  ::close(ends[0]);
}

TEST_F(GenerateBatch, reads_ahead_only_so_far_whatever_the_length_of_the_file) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  options_.prompts = concat("/dev/fd/", ends[0]);
  options_.defaults.engine.max_sequences = 1;
  options_.defaults.request.max_tokens = 1;
  constexpr int kLines = 400;
  std::atomic<int> written = 0;
  std::jthread writer([&] {
    const std::string line = "{\"prompt\": \"a\"" + std::string(8000, ' ') + "}\n";
    for (int i = 0; i < kLines; ++i) {
      for (std::size_t at = 0; at < line.size();) {
        const ssize_t count = ::write(ends[1], line.data() + at, line.size() - at);
        if (count <= 0) return;
        at += static_cast<std::size_t>(count);
      }
      ++written;
    }
    ::close(ends[1]);
  });
  int answered = 0, ahead = 0;
  options_.on_line = [&](std::string_view) {
    ++answered;
    ahead = std::max(ahead, written.load() - answered);
  };
  generate_batch(options_, serial_executor());
  EXPECT_EQ(answered, kLines);
  EXPECT_LT(ahead, 120);  // the window, the reader's buffer and the pipe hold fewer
  ::close(ends[0]);
}

// Otherwise every later line would fail for the same reason, and the job would count as done.
TEST_F(GenerateBatch, a_model_that_is_truncated_ends_the_job_and_keeps_the_answers) {
  options_.defaults.engine.max_sequences = 1;
  const auto keep = options_.on_line;
  options_.on_line = [&](std::string_view line) {
    keep(line);
    std::filesystem::resize_file(options_.defaults.model / "model.safetensors", 0);
  };
  try {
    run("{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n{\"prompt\": \"c\"}\n{\"prompt\": \"d\"}\n");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::CorruptFile);
    EXPECT_THAT(error.what(), testing::HasSubstr("was truncated while it was read"));
  }
  ASSERT_GE(results_.size(), 1u);
  for (const Json& one : results_) EXPECT_FALSE(one.contains("error")) << one;
}

TEST_F(GenerateBatch, a_deadline_is_one_line_s_own) {
  run("{\"prompt\": \"a\", \"timeout\": 1e-9}\n{\"prompt\": \"b\"}\n");
  EXPECT_EQ(results_[0]["error"]["refusal"], "deadline_passed");
  EXPECT_THAT(
      results_[0]["error"]["message"].get<std::string>(),
      testing::HasSubstr("timeout] The time of the request was over before its first token"));
  EXPECT_EQ(results_[1]["tokens"].size(), 8u);
}

}  // namespace
}  // namespace hone::app
