// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/llm_contestants.h"

#include <gtest/gtest.h>

#include "hone/core/error.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::bench {
namespace {

class LlmContestants : public testing::Test {
 protected:
  LlmContestants() {
    model_io::Architecture a = test::tiny_architecture();
    a.context = 512;
    write_hugging_face(folder_.path() / "hf", test::TinyModel(a).source());
    engine_ = infer::Engine::open_or_throw(
        folder_.path() / "hf",
        {.executor = &serial_executor(), .need_tokenizer = false, .max_sequences = 8});
  }
  test::TemporaryFolder folder_;
  std::unique_ptr<infer::Engine> engine_;
};

// Otherwise a second run would measure the copy of the first one's keys and values.
TEST_F(LlmContestants, every_prefill_computes_its_whole_prompt) {
  HoneSide side(*engine_, {.is_prefill = true, .tokens = 200}, {.sampling = {.temperature = 0}});
  for (int i = 0; i < 3; ++i) {
    side.prepare();
    side.run();
  }
  EXPECT_EQ(engine_->stats().cached_tokens, 0);
  EXPECT_EQ(engine_->stats().succeeded, 3);
}

// So that both compute the same rows.
TEST_F(LlmContestants, a_score_reads_as_many_tokens_as_the_prefill) {
  HoneSide side(*engine_, {.is_prefill = true, .tokens = 200}, {.name = "score"});
  for (int i = 0; i < 2; ++i) {
    side.prepare();
    const Index before = engine_->stats().rows;
    side.run();
    EXPECT_EQ(engine_->stats().rows, before + 200);
  }
  EXPECT_EQ(engine_->stats().cached_tokens, 0);
}

// So that the timed part has the same number of steps, all of the same size.
TEST_F(LlmContestants, sequences_start_together_and_decode_in_every_step) {
  for (const Index depth : {0, 31, 200}) {
    for (const Index sequences : {1, 2, 8}) {
      HoneSide side(*engine_, {.tokens = 10, .depth = depth},
                    {.sampling = {.temperature = 0}, .sequences = sequences});
      side.prepare();
      EXPECT_EQ(engine_->stats().running, sequences);
      int steps = 0;
      for (; engine_->stats().running > 0; ++steps) {
        ASSERT_EQ(engine_->stats().running, sequences);
        engine_->step();
      }
      EXPECT_EQ(steps, 10) << "depth " << depth << ", " << sequences << " sequences";
    }
  }
}

TEST_F(LlmContestants, names_tell_programs_ways_to_draw_and_sequences) {
  EXPECT_EQ((LlmMode{}.label("hone")), "hone");
  EXPECT_EQ((LlmMode{.name = "sampled", .sequences = 8}.label("hone")), "hone sampled x8");
  EXPECT_EQ((LlmWork{.tokens = 64, .depth = 512}.name()), "tg64@512");
  EXPECT_THROW(start_llm_peer("vllm", "m.gguf", 10, 1, 1), Error);
}

}  // namespace
}  // namespace hone::bench
