// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/prefill_stall.h"

#include <gtest/gtest.h>

#include "hone/core/error.h"
#include "hone/measure/measure.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::bench {
namespace {

class PrefillStall : public testing::Test {
 protected:
  PrefillStall() {
    model_io::Architecture a = test::tiny_architecture();
    a.context = stall_context(kPrompt);
    write_hugging_face(folder_.path() / "hf", test::TinyModel(a).source());
    engine_ = infer::Engine::open_or_throw(
        folder_.path() / "hf",
        {.executor = &serial_executor(), .need_tokenizer = false, .max_sequences = 3});
  }
  Json rows(const BenchOptions& options, Index prompt) {
    const auto measurer = measure::make_measurer();
    BenchRun run(*measurer, options);
    bench_prefill_stall("m", prompt, std::vector<Index>{1, 2}, *engine_, run);
    return run.rows();
  }
  static constexpr Index kPrompt = 400;
  test::TemporaryFolder folder_;
  std::unique_ptr<infer::Engine> engine_;
};

TEST_F(PrefillStall, the_times_between_all_tokens_are_ordered_and_counted) {
  const Json rows = this->rows({.repeat = 2}, kPrompt);
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) {
    EXPECT_EQ(row.at("case"), "m/beside400");
    EXPECT_GT(row.at("alone_ms").get<double>(), 0);
    EXPECT_LE(row.at("beside_ms"), row.at("p99_ms"));
    EXPECT_LE(row.at("p99_ms"), row.at("max_ms"));
    EXPECT_GT(row.at("first_token_s").get<double>(), 0);
    EXPECT_GE(row.at("n"), 2);
  }
  EXPECT_EQ(rows[1].at("impl"), "hone x2");
  // Every prompt was computed: sequences of other rounds have shared nothing.
  EXPECT_EQ(engine_->stats().cached_tokens, 0);
  EXPECT_EQ(engine_->stats().running, 0);
}

TEST_F(PrefillStall, empty_prompts_are_refused_and_a_stop_is_followed) {
  EXPECT_THROW(rows({}, 0), Error);
  const hone::test::StopFlag stop{true};
  EXPECT_THROW(rows({.stop = stop}, kPrompt), Error);
}

}  // namespace
}  // namespace hone::bench
