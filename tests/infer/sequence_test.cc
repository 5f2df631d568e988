// SPDX-License-Identifier: Apache-2.0
// One request with scripted logits and a scripted clock.
#include "hone/infer/sched/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "hone/core/error.h"
#include "hone/text/vocabulary.h"
#include "tests/support/scripted_clock.h"

namespace hone::infer {
namespace {

// <unk> <s> </s>, 256 bytes from 3 on, then "▁a", "b".
constexpr TokenId kFirstByte = 3, kSpaceA = 259, kB = 260, kVocab = 261;

std::shared_ptr<const text::Tokenizer> byte_tokenizer() {
  text::Vocabulary vocabulary;
  vocabulary.model = text::TokenizerModel::SentencePieceBpe;
  vocabulary.pieces = {"<unk>", "<s>", "</s>"};
  vocabulary.types = {text::TokenType::Unknown, text::TokenType::Control, text::TokenType::Control};
  const char* hex = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.pieces.push_back(std::string("<0x") + hex[byte / 16] + hex[byte % 16] + ">");
    vocabulary.types.push_back(text::TokenType::Byte);
  }
  for (const char* piece : {"\xe2\x96\x81"
                            "a",
                            "b"}) {
    vocabulary.pieces.emplace_back(piece);
    vocabulary.types.push_back(text::TokenType::Normal);
  }
  vocabulary.scores.assign(vocabulary.pieces.size(), 0.0f);
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.add_bos = true;
  vocabulary.add_space_prefix = true;
  return text::make_tokenizer(std::move(vocabulary));
}

class SequenceTest : public testing::Test {
 protected:
  Sequence make(Request request, Index context = 100) {
    QueuedRequest queued;
    queued.id = 9;
    queued.request = std::move(request);
    queued.request.sampling.temperature = 0;
    queued.cancelled = std::make_shared<std::atomic<bool>>(false);
    queued.submitted_ns = 1'000'000'000;
    clock.advance(1);
    Sequence sequence(std::move(queued), tokenizer.get(), {2}, context);
    sequence.start(clock.now_ns());
    return sequence;
  }
  // A step of one second whose likeliest token is `id`, then `second`.
  Event step(Sequence& sequence, TokenId id, TokenId second = 0) {
    std::vector<float> logits(kVocab, 0.0f);
    logits[static_cast<std::size_t>(second)] = 5;
    logits[static_cast<std::size_t>(id)] = 9;
    clock.advance(1);
    return sequence.accept(logits, clock);
  }

  std::shared_ptr<const text::Tokenizer> tokenizer = byte_tokenizer();
  hone::test::ScriptedClock clock;
};

TEST_F(SequenceTest, rows_that_pad_the_embedding_write_nothing) {
  Sequence sequence = make({.tokens = {1}, .max_tokens = 4});
  std::vector<float> logits(kVocab + 50, 0.0f);
  logits[kVocab + 40] = 9;
  const Event padding = sequence.accept(logits, clock);
  EXPECT_EQ(padding.text, "");
  EXPECT_FALSE(padding.finished);
  // What follows still begins the text: without the space in front.
  EXPECT_EQ(step(sequence, kSpaceA).text, "a");
}

TEST_F(SequenceTest, half_a_code_point_waits_for_its_rest) {
  Sequence sequence = make({.tokens = {1, kB}, .max_tokens = 4});
  EXPECT_EQ(step(sequence, kFirstByte + 0xc3).text, "");
  EXPECT_EQ(step(sequence, kFirstByte + 0xa9).text, "\xc3\xa9");
  EXPECT_EQ(step(sequence, kFirstByte + 0xc3).text, "");
  const Event last = step(sequence, kB);
  EXPECT_EQ(last.text,
            "\xef\xbf\xbd"
            "b");  // never completed
  EXPECT_EQ(last.finished, FinishReason::Length);
}

TEST_F(SequenceTest, the_dummy_space_goes_only_where_the_text_begins) {
  Sequence empty_prompt = make({.tokens = {1}, .max_tokens = 3});
  EXPECT_EQ(step(empty_prompt, kSpaceA).text, "a");
  EXPECT_EQ(step(empty_prompt, kSpaceA).text, " a");
  Sequence with_prompt = make({.tokens = {1, kB}, .max_tokens = 3});
  EXPECT_EQ(step(with_prompt, kSpaceA).text, " a");
}

TEST_F(SequenceTest, a_stop_token_ends_without_text_unless_masked_or_ignored) {
  Sequence plain = make({.tokens = {1, kB}, .max_tokens = 9});
  const Event end = step(plain, 2);
  EXPECT_EQ(end.token, 2);
  EXPECT_EQ(end.text, "");
  EXPECT_EQ(end.finished, FinishReason::Stop);
  Sequence masked = make({.tokens = {1, kB}, .max_tokens = 9, .min_tokens = 1});
  EXPECT_EQ(step(masked, 2, kB).token, kB);
  EXPECT_EQ(step(masked, 2, kB).finished, FinishReason::Stop);
  Sequence ignoring = make({.tokens = {1, kB}, .ignore_eos = true, .max_tokens = 2});
  EXPECT_FALSE(step(ignoring, 2).finished.has_value());
  EXPECT_EQ(step(ignoring, 2).finished, FinishReason::Length);
}

TEST_F(SequenceTest, a_stop_string_over_three_tokens_is_cut_out) {
  Sequence sequence = make({.tokens = {1, kB}, .stop = {"b a"}, .max_tokens = 9});
  EXPECT_EQ(step(sequence, kSpaceA).text, " a");
  EXPECT_EQ(step(sequence, kB).text, "");
  const Event last = step(sequence, kSpaceA);
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.finished, FinishReason::Stop);
}

TEST_F(SequenceTest, stop_strings_are_looked_for_once_the_output_has_its_minimum) {
  const Request request{.tokens = {1, kB}, .stop = {"b"}, .max_tokens = 9};
  for (const Index least : {0, 1, 2, 4}) {
    Request longer = request;
    longer.min_tokens = least;
    Sequence sequence = make(longer);
    const Index tokens = std::max<Index>(least, 1);
    for (Index i = 1; i < tokens; ++i) {
      const Event event = step(sequence, kB);
      EXPECT_EQ(event.text, "b") << least << " " << i;
      EXPECT_FALSE(event.finished) << least << " " << i;
    }
    const Event last = step(sequence, kB);
    EXPECT_EQ(last.text, "") << least;
    EXPECT_EQ(last.finished, FinishReason::Stop) << least;
    ASSERT_TRUE(last.cause);
    EXPECT_EQ(last.cause->kind, StopCause::Kind::String);
    EXPECT_EQ(last.cause->string, 0);
    EXPECT_EQ(last.timings.generated_tokens, tokens);
  }
}

TEST_F(SequenceTest, the_text_before_the_minimum_loses_nothing_to_stop_strings) {
  // Half a code point, and the beginning of a stop string that never comes.
  Sequence sequence =
      make({.tokens = {1, kB}, .stop = {"\xc3\xa9", "ab"}, .max_tokens = 6, .min_tokens = 3});
  EXPECT_EQ(step(sequence, kFirstByte + 0xc3).text, "");
  EXPECT_EQ(step(sequence, kFirstByte + 0xa9).text, "\xc3\xa9");
  EXPECT_EQ(step(sequence, kSpaceA).text, " ");  // "a" might begin the second one
  EXPECT_EQ(step(sequence, kSpaceA).text, "a ");
  const Event last = step(sequence, kB);
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.finished, FinishReason::Stop);
  EXPECT_EQ(last.cause->string, 1);
  // A minimum that is also the maximum.
  Sequence whole = make({.tokens = {1, kB}, .stop = {"b"}, .max_tokens = 2, .min_tokens = 2});
  EXPECT_EQ(step(whole, kB).text, "b");
  EXPECT_EQ(step(whole, kSpaceA).finished, FinishReason::Length);
}

TEST_F(SequenceTest, control_tokens_are_spelled_in_the_text_where_that_is_asked_for) {
  const Request plain{.tokens = {1, kB}, .ignore_eos = true, .max_tokens = 9};
  Sequence silent = make(plain);
  for (const TokenId id : {1, 2}) EXPECT_EQ(step(silent, id, kB).text, "") << id;
  Request request = plain;
  request.visible_ids = {2, 1};  // in any order
  Sequence sequence = make(request);
  EXPECT_EQ(step(sequence, 1).text, "<s>");
  EXPECT_EQ(step(sequence, 2).text, "</s>");
  EXPECT_EQ(step(sequence, kB).text, "b");
  request.visible_ids = {2};
  Sequence other = make(request);
  EXPECT_EQ(step(other, 1).text, "");
  EXPECT_EQ(step(other, 2).text, "</s>");
  // A token that ends the text adds nothing to it.
  request.ignore_eos = false;
  Sequence ending = make(request);
  const Event end = step(ending, 2);
  EXPECT_EQ(end.text, "");
  EXPECT_EQ(end.finished, FinishReason::Stop);
}

TEST_F(SequenceTest, a_visible_token_begins_the_text_and_completes_stop_strings) {
  Request request{.tokens = {1}, .ignore_eos = true, .max_tokens = 9};
  Sequence silent = make(request);
  EXPECT_EQ(step(silent, 2).text, "");
  EXPECT_EQ(step(silent, kSpaceA).text, "a") << "still at the beginning";
  request.visible_ids = {2};
  Sequence visible = make(request);
  EXPECT_EQ(step(visible, 2).text, "</s>");
  EXPECT_EQ(step(visible, kSpaceA).text, " a") << "no longer at the beginning";
  request.stop = {"a</s>b"};
  Sequence stopping = make(request);
  EXPECT_EQ(step(stopping, kSpaceA).text, "");
  EXPECT_EQ(step(stopping, 2).text, "");
  const Event last = step(stopping, kB);
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.finished, FinishReason::Stop);
}

TEST_F(SequenceTest, the_context_limits_the_whole_sequence) {
  Sequence sequence = make({.tokens = {1, kB}, .max_tokens = 50}, 4);
  EXPECT_FALSE(step(sequence, kB).finished.has_value());
  EXPECT_EQ(step(sequence, kB).finished, FinishReason::Context);
  // Where both limits are reached, the one that was asked for is told.
  Sequence both = make({.tokens = {1, kB}, .max_tokens = 2}, 4);
  EXPECT_FALSE(step(both, kB).finished.has_value());
  EXPECT_EQ(step(both, kB).finished, FinishReason::Length);
}

TEST_F(SequenceTest, each_phase_has_its_own_time_and_they_add_up) {
  Sequence sequence = make({.tokens = {1, kB}, .max_tokens = 4});
  for (int i = 0; i < 3; ++i) step(sequence, kB);
  const Timings timings = step(sequence, kB).timings;
  EXPECT_DOUBLE_EQ(timings.queue_s, 1);
  EXPECT_DOUBLE_EQ(timings.prompt_s, 1);
  EXPECT_DOUBLE_EQ(timings.decode_s, 3);
  EXPECT_DOUBLE_EQ(timings.ttft_s, 2);
  EXPECT_DOUBLE_EQ(timings.prompt_per_s(), 2);
  EXPECT_DOUBLE_EQ(timings.decode_per_s(), 1);
  EXPECT_EQ(timings.generated_tokens, 4);
}

TEST_F(SequenceTest, logprobs_are_those_of_the_raw_logits) {
  Request request{.tokens = {1, kB}, .max_tokens = 4, .logprobs = 2};
  request.sampling.logit_bias = {{kSpaceA, 50}};
  Sequence sequence = make(request);
  const Event event = step(sequence, kB, kSpaceA);
  EXPECT_EQ(event.token, kSpaceA);  // by the bias
  ASSERT_EQ(event.top.size(), 2u);
  EXPECT_EQ(event.top[0].id, kB);
  EXPECT_NEAR(event.top[0].logprob - event.top[1].logprob, 4, 1e-6);
  EXPECT_NEAR(event.logprob, event.top[1].logprob, 1e-6);
}

TEST_F(SequenceTest, logits_that_are_not_finite_are_an_error) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Sequence sequence = make({.tokens = {1, kB}, .max_tokens = 4});
    std::vector<float> logits(kVocab, 0.0f);
    logits[17] = bad;
    EXPECT_THROW(sequence.accept(logits, clock), Error);
  }
}

}  // namespace
}  // namespace hone::infer
