// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/step_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/infer/model/model_runner.h"
#include "hone/model_io/write_model.h"
#include "tests/infer/text_cache.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/straggling_executor.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

using testing::HasSubstr;
using Logits = std::vector<float>;

// A text that is run in chunks, and its cache.
struct Text {
  Text(const kernels::KvLayout& layout, PhiloxStream& random, Index length) : cache(layout, 64) {
    for (Index i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(random.below(48)));
  }
  Index left() const { return std::ssize(tokens) - cache.length(); }
  // Adds its next rows to the batch.
  void add(Index rows, StepBatch& batch) {
    const auto begin = tokens.begin() + cache.length();
    batch.tokens.insert(batch.tokens.end(), begin, begin + rows);
    batch.sequences.push_back({.rows = rows,
                               .first_position = cache.length(),
                               .tables = {cache.table()},
                               .logits = rows});
  }

  std::vector<text::TokenId> tokens;
  test::TextCache cache;
  Logits logits;  // of all rows so far
  using TokenId = text::TokenId;
};

class StepBatchTest : public testing::Test {
 protected:
  StepBatchTest() {
    const hone::test::TinyModel model(hone::test::tiny_architecture());
    model_io::write_hugging_face(folder_.path() / "model", model.source());
    file_ = test::open_bare(folder_.path() / "model");
  }
  std::unique_ptr<ModelRunner> runner(Executor& executor, Dtype kv = Dtype::Float16) const {
    return std::make_unique<ModelRunner>(*file_, RunnerOptions{.kv = kv, .max_rows = kMaxRows},
                                         executor);
  }
  static std::vector<Text> texts(const ModelRunner& runner) {
    PhiloxStream random(5);
    std::vector<Text> out;
    for (const Index length : {1, 40, 7, 33, 64, 2, 19}) {
      out.emplace_back(runner.kv_layout(), random, length);
    }
    return out;
  }
  // Runs the next rows of some texts in one step.
  static void step(ModelRunner& runner, std::vector<Text*> batched, std::vector<Index> rows) {
    StepBatch batch;
    for (std::size_t i = 0; i < batched.size(); ++i) batched[i]->add(rows[i], batch);
    ASSERT_TRUE(runner.forward(batch));
    Index at = 0;
    for (std::size_t i = 0; i < batched.size(); ++i) {
      const auto logits = runner.logits(at, rows[i]);
      batched[i]->logits.insert(batched[i]->logits.end(), logits.begin(), logits.end());
      batched[i]->cache.commit(rows[i]);
      at += rows[i];
    }
  }

  static constexpr Index kMaxRows = 64;
  hone::test::TemporaryFolder folder_;
  std::unique_ptr<model_io::ModelFile> file_;
};

TEST_F(StepBatchTest, gives_a_text_the_logits_that_it_has_alone_bit_for_bit) {
  ThreadPool pool(3);
  for (const Dtype kv : {Dtype::Float16, Dtype::Float32}) {
    const auto alone_runner = runner(serial_executor(), kv), batch_runner = runner(pool, kv);
    std::vector<Text> alone = texts(*alone_runner);
    for (Text& text : alone) step(*alone_runner, {&text}, {text.left()});
    for (const std::uint64_t seed : {1, 2, 3}) {
      PhiloxStream random(seed);
      std::vector<Text> together = texts(*batch_runner);
      for (;;) {
        std::vector<Text*> batched;
        std::vector<Index> rows;
        Index room = kMaxRows;
        for (Text& text : together) {
          const Index most = std::min(text.left(), room);
          if (most == 0 || random.below(3) == 0) continue;
          batched.push_back(&text);
          rows.push_back(1 + random.below(static_cast<std::uint32_t>(most)));
          room -= rows.back();
        }
        if (!batched.empty()) step(*batch_runner, batched, rows);
        if (std::ranges::all_of(together, [](const Text& text) { return text.left() == 0; })) break;
      }
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_EQ(together[i].logits, alone[i].logits) << "text " << i << " seed " << seed;
      }
    }
  }
}

TEST_F(StepBatchTest, changes_no_input_that_a_straggler_may_still_read) {
  const auto plain = runner(serial_executor());
  hone::test::StragglingExecutor executor;
  const auto late = runner(executor);
  std::vector<Text> expected = texts(*plain), texts_of_late = texts(*late);
  const auto run_all = [](ModelRunner& model, std::vector<Text>& all) {
    step(model, {&all[4], &all[1]}, {30, 20});                        // many rows
    step(model, {&all[0], &all[1], &all[2], &all[4]}, {1, 1, 3, 2});  // few rows
    for (int i = 0; i < 20; ++i) step(model, {&all[3], &all[4]}, {1, 1});
    step(model, {&all[6], &all[3]}, {19, 2});
  };
  run_all(*plain, expected);
  run_all(*late, texts_of_late);
  EXPECT_GT(executor.recomputed(), 1000);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(texts_of_late[i].logits, expected[i].logits) << i;
  }
}

TEST_F(StepBatchTest, has_logits_of_the_wanted_rows_only) {
  const auto model = runner(serial_executor());
  std::vector<Text> all = texts(*model), some = texts(*model);
  step(*model, {&all[1], &all[2]}, {20, 7});
  StepBatch batch;
  some[1].add(20, batch);
  some[2].add(7, batch);
  some[0].add(1, batch);
  batch.sequences[0].logits = 2;
  batch.sequences[1].logits = 0;
  ASSERT_TRUE(model->forward(batch));
  EXPECT_EQ(batch.logits(), 3);
  const auto logits = model->logits(0, 2);
  EXPECT_EQ(Logits(logits.begin(), logits.end()),
            Logits(all[1].logits.end() - 2 * 48, all[1].logits.end()));
  EXPECT_EQ(model->logits(2, 1).size(), 48u);
  EXPECT_NE(hone::test::error_of([&] { model->logits(2, 2); }), "no error");
}

TEST_F(StepBatchTest, stops_between_layers) {
  const auto model = runner(serial_executor());
  std::vector<Text> all = texts(*model);
  StepBatch batch;
  all[1].add(3, batch);
  Index layers = 0;
  EXPECT_FALSE(model->forward(batch, [&] { return ++layers < 2; }));
  EXPECT_EQ(layers, 2);
  step(*model, {&all[1]}, {40});
  std::vector<Text> alone = texts(*model);
  step(*model, {&alone[1]}, {40});
  EXPECT_EQ(all[1].logits, alone[1].logits) << "cells of a step that stopped are written again";
}

TEST_F(StepBatchTest, is_refused_by_name_where_it_does_not_add_up) {
  const auto model = runner(serial_executor());
  const auto said = [&](const auto& spoil) {
    StepBatch batch;
    std::vector<Text> fresh = texts(*model);
    fresh[2].add(7, batch);
    spoil(batch);
    return hone::test::error_of([&] { model->forward(batch); });
  };
  EXPECT_EQ(said([](StepBatch&) {}), "no error");
  EXPECT_THAT(said([](auto& b) { b.tokens.clear(); }), HasSubstr("1 to 64 tokens, got 0"));
  EXPECT_THAT(said([](auto& b) { b.tokens.resize(65); }), HasSubstr("1 to 64 tokens, got 65"));
  EXPECT_THAT(said([](auto& b) { b.tokens.pop_back(); }), HasSubstr("sequences of 6 rows, got 7"));
  EXPECT_THAT(said([](auto& b) { b.tokens[3] = 48; }), HasSubstr("below 48, got 48"));
  EXPECT_THAT(said([](auto& b) { b.tokens[3] = -1; }), HasSubstr("below 48, got -1"));
  EXPECT_THAT(said([](auto& b) { b.sequences[0].rows = 0; }), HasSubstr("at least 1 row"));
  EXPECT_THAT(said([](auto& b) { b.sequences[0].logits = 8; }), HasSubstr("logits of 0 to 7 rows"));
  EXPECT_THAT(said([](auto& b) { b.sequences[0].tables.clear(); }), HasSubstr("block table"));
  EXPECT_THAT(said([](auto& b) { b.sequences[0].first_position = 90; }), HasSubstr("blocks"));
}

}  // namespace
}  // namespace hone::infer
